# cmake --install: the programs with their shipped graphs, and libraries and headers as a package:
#
#   find_package(AutoDist REQUIRED)
#   target_link_libraries(train PRIVATE AutoDist::AutoDist)
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# What a program links: the facade of app/torch/session.h, or planning alone without libtorch.
add_library(autodist_package INTERFACE)
set_target_properties(autodist_package PROPERTIES EXPORT_NAME AutoDist)
target_compile_features(autodist_package INTERFACE cxx_std_17)
if(AUTODIST_TORCH)
  target_link_libraries(autodist_package INTERFACE autodist_app_torch)
  set(programs autodist autodist-torch)
else()
  target_link_libraries(autodist_package INTERFACE autodist_app)
  set(programs autodist)
endif()

get_property(layers GLOBAL PROPERTY AUTODIST_LAYER_TARGETS)
# pip installs the Python module; studies are no part of the package.
list(REMOVE_ITEM layers autodist_app_python autodist_studies autodist_studies_torch)
install(TARGETS ${layers} autodist_package EXPORT AutoDistTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/data/graphs ${CMAKE_SOURCE_DIR}/data/autosync
  ${CMAKE_SOURCE_DIR}/data/clusters
  DESTINATION share/autodist)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/autodist DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "testdata" EXCLUDE PATTERN "testing" EXCLUDE
  PATTERN "python" EXCLUDE PATTERN "studies" EXCLUDE)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/AutoDist)
install(EXPORT AutoDistTargets NAMESPACE AutoDist:: DESTINATION ${package})
string(COMPARE NOTEQUAL "${AUTODIST_TORCH_FOLDER}" "" torch_of_python)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/AutoDistConfig.cmake.in
  ${CMAKE_BINARY_DIR}/AutoDistConfig.cmake INSTALL_DESTINATION ${package})
# Before version 1, a minor version may change what the headers promise.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/AutoDistConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/AutoDistConfig.cmake
  ${CMAKE_BINARY_DIR}/AutoDistConfigVersion.cmake DESTINATION ${package})
if(AUTODIST_TORCH_FOLDER)  # how the torch of another machine's Python is found
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/Torch.cmake DESTINATION ${package})
endif()
