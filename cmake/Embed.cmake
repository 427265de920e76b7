# Puts text files into a library as constants, so that the programs need no files beside them.
#
# autodist_embed(<target> <generated .cc> <namespace> CONSTANTS <constant>=<file>[,<file>…] …)
# The files of a constant stand one after the other. Paths have neither spaces nor commas.
function(autodist_embed target output namespace)
  cmake_parse_arguments(ARG "" "" "CONSTANTS" ${ARGN})
  set(files "")
  foreach(item IN LISTS ARG_CONSTANTS)
    string(REGEX REPLACE "^[^=]*=" "" paths ${item})
    string(REPLACE "," ";" paths ${paths})
    list(TRANSFORM paths PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    list(APPEND files ${paths})
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${output})
  string(REPLACE ";" " " constants "${ARG_CONSTANTS}")
  set(script ${CMAKE_SOURCE_DIR}/cmake/EmbedFiles.cmake)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${source} -DFOLDER=${CMAKE_CURRENT_SOURCE_DIR}
      -DNAMESPACE=${namespace} "-DCONSTANTS=${constants}" -P ${script}
    DEPENDS ${files} ${script}
    VERBATIM)
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source})
endfunction()
