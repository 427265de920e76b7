# Builds one library per folder of autodist/ and links it to exactly the folders that layers.txt
# allows it to include.

file(STRINGS ${CMAKE_SOURCE_DIR}/layers.txt AUTODIST_LAYER_LINES REGEX "^[a-z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/layers.txt)

# autodist::comm_c10d for "comm/c10d"
function(autodist_target_name layer out)
  string(REPLACE "/" "_" name ${layer})
  set(${out} autodist_${name} PARENT_SCOPE)
endfunction()

# autodist_layer(<layer> [TENSORS] SOURCES <.cc …> [TESTING <.cc …>] [TESTS <_test.cc …>]
#                [LIBRARIES <third-party targets …>])
# TESTING, in the layer's folder testing/, is what its tests share with those of the layers above it:
# <target>_testing, which no product links and no package holds. Each test file becomes one test
# program named <layer>_<file>; those of torch rooms are built by the target torch_tests, too. The
# layer's order comes from layers.txt. TENSORS: autodist_use_torch's.
function(autodist_layer layer)
  cmake_parse_arguments(ARG "TENSORS" "" "SOURCES;TESTING;TESTS;LIBRARIES" ${ARGN})
  set(tensors "")
  if(ARG_TENSORS)
    set(tensors TENSORS)
  endif()
  set(declared FALSE)
  foreach(line IN LISTS AUTODIST_LAYER_LINES)
    if(line MATCHES "^${layer}( \\[torch\\])?:(.*)$")
      set(declared TRUE)
      set(torch "${CMAKE_MATCH_1}")
      separate_arguments(below UNIX_COMMAND "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  if(NOT declared)
    message(FATAL_ERROR "layer '${layer}' is not declared in layers.txt")
  endif()

  autodist_target_name(${layer} target)
  if(ARG_SOURCES)
    set(scope PUBLIC)
    add_library(${target} STATIC ${ARG_SOURCES})
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${AUTODIST_UNITY})
    if(torch)
      autodist_use_torch(${target} ${tensors})
    endif()
  else()
    set(scope INTERFACE)  # headers alone
    add_library(${target} INTERFACE)
  endif()
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}>
    $<INSTALL_INTERFACE:include>)
  set_property(GLOBAL APPEND PROPERTY AUTODIST_LAYER_TARGETS ${target})
  foreach(lower IN LISTS below)
    autodist_target_name(${lower} lower_target)
    target_link_libraries(${target} ${scope} ${lower_target})
  endforeach()
  target_link_libraries(${target} ${scope} fmt::fmt Threads::Threads ${ARG_LIBRARIES})

  if(AUTODIST_TESTS)
    if(ARG_TESTING)
      set(scope PUBLIC)
      add_library(${target}_testing STATIC ${ARG_TESTING})
      if(torch)
        autodist_use_torch(${target}_testing ${tensors})
      endif()
    else()
      set(scope INTERFACE)
      add_library(${target}_testing INTERFACE)
    endif()
    target_link_libraries(${target}_testing ${scope} ${target})
    foreach(lower IN LISTS below)
      autodist_target_name(${lower} lower_target)
      target_link_libraries(${target}_testing ${scope} ${lower_target}_testing)
    endforeach()
    foreach(file IN LISTS ARG_TESTS)
      get_filename_component(name ${file} NAME_WE)
      string(REPLACE "/" "_" prefix ${layer})
      autodist_test(${prefix}_${name} SOURCES ${file} LIBRARIES ${target}_testing)
      if(torch)
        autodist_use_torch(${prefix}_${name} ${tensors})
        if(NOT TARGET torch_tests)
          add_custom_target(torch_tests)
        endif()
        add_dependencies(torch_tests ${prefix}_${name})
      endif()
    endforeach()
  endif()
endfunction()

function(autodist_compile_with_torch target)
  set_target_properties(${target} PROPERTIES CXX_STANDARD ${AUTODIST_TORCH_STANDARD})
  target_include_directories(${target} SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
  target_compile_definitions(${target} PRIVATE ${AUTODIST_TORCH_DEFINITIONS})
  target_link_libraries(${target} PUBLIC ${TORCH_LIBRARIES})
endfunction()

# The torch rooms share a precompiled torch/torch.h: 18 s once instead of once per file. A file that
# includes it still takes 8 s for what its templates leave to the end; where no modules are needed,
# TENSORS takes torch/types.h, with 2 s.
function(autodist_use_torch target)
  set(headers autodist_torch_headers)
  set(included <torch/torch.h>)
  if("TENSORS" IN_LIST ARGN)
    set(headers autodist_tensor_headers)
    set(included <torch/types.h>)
  endif()
  autodist_compile_with_torch(${target})
  if(NOT TARGET ${headers})
    file(WRITE ${CMAKE_BINARY_DIR}/${headers}.cc "")
    add_library(${headers} STATIC ${CMAKE_BINARY_DIR}/${headers}.cc)
    autodist_compile_with_torch(${headers})
    target_precompile_headers(${headers} PRIVATE ${included})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

# What every ctest entry runs under: a limit in seconds, ten times that under a sanitizer, and
# ThreadSanitizer's suppressions. What tests measure is no part of anybody's history. OpenBLAS' own
# threads wait by spinning: beside the ranks of a job in one process they cost up to half of a core's
# time; ranks that are processes set their number themselves.
function(autodist_limit_test name seconds)
  if(AUTODIST_SANITIZE)  # several times slower
    math(EXPR seconds "10 * ${seconds}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds}
    ENVIRONMENT_MODIFICATION "AUTODIST_HISTORY=set:off;OPENBLAS_NUM_THREADS=set:1")
  if(AUTODIST_SANITIZE STREQUAL "thread")
    # A test's child that was forked beside threads may have threads of its own.
    set_tests_properties(${name} PROPERTIES
      ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tools/tsan.supp:die_after_fork=0")
  endif()
endfunction()

# autodist_script_test(<name> <seconds> [SKIPS] [LABELS …] COMMAND …): a script as a ctest entry.
# With SKIPS, its exit code 77 says that this machine lacks what it needs.
function(autodist_script_test name seconds)
  cmake_parse_arguments(ARG "SKIPS" "" "LABELS;COMMAND" ${ARGN})
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  if(ARG_SKIPS)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
  if(ARG_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  endif()
  autodist_limit_test(${name} ${seconds})
endfunction()

# autodist_test(<name> SOURCES … LIBRARIES … [LABELS …] [SLOW] [SLOW_APART <suite>]): one GoogleTest
# program, one ctest entry. With SLOW, test cases whose name begins with "Slow" run in a second entry,
# <name>_slow, labelled slow; those of the suite SLOW_APART, which begins so, too, in a third,
# <name>_slow_apart, with a time of their own.
function(autodist_test name)
  cmake_parse_arguments(ARG "SLOW" "TIMEOUT;SLOW_APART" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${AUTODIST_TEST_PROGRAMS})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE AUTODIST_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name} --gtest_filter=-Slow*)
  if(ARG_SLOW)
    set(others "")
    if(ARG_SLOW_APART)
      set(others "-${ARG_SLOW_APART}.*")
      add_test(NAME ${name}_slow_apart COMMAND ${name} --gtest_filter=${ARG_SLOW_APART}.*)
      set_tests_properties(${name}_slow_apart PROPERTIES LABELS slow)
      autodist_limit_test(${name}_slow_apart 3600)
    endif()
    add_test(NAME ${name}_slow COMMAND ${name} --gtest_filter=Slow*${others})
    set_tests_properties(${name}_slow PROPERTIES LABELS slow)
    autodist_limit_test(${name}_slow 3600)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  autodist_limit_test(${name} ${ARG_TIMEOUT})
endfunction()

# Generated beside its header's include path: autodist/x/y.proto -> <build>/autodist/x/y.pb.h.
function(autodist_proto target proto)
  string(REGEX REPLACE "\\.proto$" "" stem ${proto})
  set(generated ${CMAKE_BINARY_DIR}/${stem}.pb.cc ${CMAKE_BINARY_DIR}/${stem}.pb.h)
  add_custom_command(OUTPUT ${generated}
    COMMAND protobuf::protoc --cpp_out=${CMAKE_BINARY_DIR} -I ${CMAKE_SOURCE_DIR}
      ${CMAKE_SOURCE_DIR}/${proto}
    DEPENDS ${CMAKE_SOURCE_DIR}/${proto})
  set_source_files_properties(${generated} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${generated})
endfunction()
