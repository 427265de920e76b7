# Finds the libtorch that the torch rooms are built on: that of the torch which AUTODIST_PYTHON has,
# where it brings a libtorch of its own (pip's wheels do), else the system's (Debian's libtorch-dev).
#
# Sets AUTODIST_TORCH_VERSION, AUTODIST_TORCH_FOLDER (of the wheel; empty: the system's),
# AUTODIST_TORCH_DEVICES (what it was built for: "CPU", "CUDA 13.0"), AUTODIST_TORCH_STANDARD (of
# C++), AUTODIST_TORCH_DEFINITIONS, TORCH_INCLUDE_DIRS, TORCH_LIBRARIES, and what the Python module
# needs: AUTODIST_PYTHON_INCLUDE and AUTODIST_PYTHON_SUFFIX (empty: no Python with torch). For files
# that see CUDA: AUTODIST_CUDA_INCLUDES (empty: there are none) and AUTODIST_CUDA_LIBRARIES.

set(AUTODIST_PYTHON /usr/bin/python3 CACHE FILEPATH
  "Python whose torch is built on, and that the module is built for")

# A torch of pip's is a folder that holds headers and libraries; Debian's links to the system's.
# Nothing is imported: a build of torch that does not fit this machine can still be named.
execute_process(
  COMMAND ${AUTODIST_PYTHON} -I -c [=[
import importlib.util, pathlib, runpy, sysconfig
print(sysconfig.get_path('include'))
print(sysconfig.get_config_var('EXT_SUFFIX'))
found = importlib.util.find_spec('torch')
folder = pathlib.Path(found.origin).parent if found else None
facts = runpy.run_path(folder / 'version.py') if found else {}
print(facts.get('__version__', '-'))
print(folder if found and not (folder / 'include' / 'c10').is_symlink() else '-')
devices = [f'{name.upper()} {facts[name]}' for name in ('cuda', 'hip', 'xpu') if facts.get(name)]
print((devices + ['CPU'])[0])
]=]
  OUTPUT_VARIABLE answer ERROR_VARIABLE complaint RESULT_VARIABLE failed
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(failed AND NOT AUTODIST_PYTHON STREQUAL "/usr/bin/python3")
  message(FATAL_ERROR "AUTODIST_PYTHON=${AUTODIST_PYTHON} cannot be asked for its torch, expected "
    "a Python interpreter; give the path of one: ${complaint}")
endif()
string(REPLACE "\n" ";" answer "${answer}")
list(APPEND answer - - - - CPU)  # of a Python that is not there
list(GET answer 0 python_include)
list(GET answer 1 AUTODIST_PYTHON_SUFFIX)
list(GET answer 2 version)
list(GET answer 3 AUTODIST_TORCH_FOLDER)
list(GET answer 4 AUTODIST_TORCH_DEVICES)
# Where Python says that its headers are, else where packages are unpacked (tools/bundle-packages).
find_path(AUTODIST_PYTHON_INCLUDE Python.h PATHS ${python_include} NO_DEFAULT_PATH NO_CACHE)
cmake_path(GET python_include FILENAME name)
find_path(AUTODIST_PYTHON_INCLUDE Python.h PATH_SUFFIXES ${name} NO_CACHE)
if(version STREQUAL "-")
  if(NOT AUTODIST_PYTHON STREQUAL "/usr/bin/python3")
    message(FATAL_ERROR "${AUTODIST_PYTHON} has no torch, expected 1.13 or 2.7 and later; install it "
      "with: ${AUTODIST_PYTHON} -m pip install torch")
  endif()
  set(AUTODIST_PYTHON_SUFFIX "")
endif()
if(AUTODIST_TORCH_FOLDER STREQUAL "-")
  set(AUTODIST_TORCH_FOLDER "")
endif()

# clang 14 cannot compile libtorch 1.13's headers as C++20 (docs/decisions/003-language-standard.md);
# headers of 2.14 and later refuse anything older.
set(AUTODIST_TORCH_STANDARD 17)
if(AUTODIST_TORCH_FOLDER AND version VERSION_GREATER_EQUAL 2.7)
  set(AUTODIST_TORCH_STANDARD 20)
endif()
if(NOT AUTODIST_TORCH_FOLDER)
  find_package(Torch REQUIRED)
  set(AUTODIST_TORCH_VERSION ${Torch_VERSION})
else()
  set(AUTODIST_TORCH_VERSION ${version})
  if(version VERSION_LESS 2.7)
    set(config ${AUTODIST_TORCH_FOLDER}/share/cmake/Torch/TorchConfig.cmake)
    if(EXISTS ${config})
      file(STRINGS ${config} old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    endif()
    if(version VERSION_LESS 1.13 OR old_abi)
      message(FATAL_ERROR "torch ${version} of ${AUTODIST_PYTHON} is older than 1.13 or has the ABI "
        "of C++ before 2011, expected 2.7 or later; upgrade it with: "
        "${AUTODIST_PYTHON} -m pip install --upgrade torch")
    endif()
  endif()
  # Libraries that we share with Debian come with their headers from there: the wheel has other
  # versions of some beside torch's.
  set(shared ${CMAKE_BINARY_DIR}/system_headers)
  file(MAKE_DIRECTORY ${shared})
  find_path(AUTODIST_FMT_HEADERS fmt/format.h REQUIRED)
  find_path(AUTODIST_PROTOBUF_HEADERS google/protobuf/message.h REQUIRED)
  file(CREATE_LINK ${AUTODIST_FMT_HEADERS}/fmt ${shared}/fmt SYMBOLIC)
  file(CREATE_LINK ${AUTODIST_PROTOBUF_HEADERS}/google ${shared}/google SYMBOLIC)
  set(TORCH_INCLUDE_DIRS ${shared}
    ${AUTODIST_TORCH_FOLDER}/include ${AUTODIST_TORCH_FOLDER}/include/torch/csrc/api/include)
  # What torch's CMake package would say to whoever compiles its distributed headers.
  set(AUTODIST_TORCH_DEFINITIONS USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE)
  # By path and without torch's own CMake package, which demands a CUDA toolkit where the wheel is a
  # CUDA build. libtorch.so refers to nothing of ours, but it is what brings in the devices. A target,
  # so that what is installed names no path (cmake/AutoDistConfig.cmake.in).
  set(libraries ${AUTODIST_TORCH_FOLDER}/lib)
  add_library(AutoDist::Torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(AutoDist::Torch INTERFACE
    -Wl,--no-as-needed ${libraries}/libtorch.so -Wl,--as-needed
    ${libraries}/libtorch_cpu.so ${libraries}/libc10.so)
  target_include_directories(AutoDist::Torch INTERFACE ${TORCH_INCLUDE_DIRS})
  target_compile_definitions(AutoDist::Torch INTERFACE ${AUTODIST_TORCH_DEFINITIONS})
  target_compile_features(AutoDist::Torch INTERFACE cxx_std_${AUTODIST_TORCH_STANDARD})
  set(TORCH_LIBRARIES AutoDist::Torch)
endif()
message(STATUS "libtorch ${AUTODIST_TORCH_VERSION} (${AUTODIST_TORCH_FOLDER})")

# A CUDA build of pip's torch comes beside CUDA's headers, in packages of their own; of CUDA 13 all
# but those of nvidia-cuda-crt and nvidia-cuda-cccl.
set(AUTODIST_CUDA_INCLUDES "")
set(AUTODIST_CUDA_LIBRARIES ${AUTODIST_TORCH_FOLDER}/lib/libtorch_cuda.so
  ${AUTODIST_TORCH_FOLDER}/lib/libc10_cuda.so)
if(AUTODIST_TORCH_FOLDER AND EXISTS ${AUTODIST_TORCH_FOLDER}/lib/libtorch_cuda.so)
  file(GLOB cuda_headers ${AUTODIST_TORCH_FOLDER}/../nvidia/*/include)
  find_path(AUTODIST_CUDA_HEADERS crt/host_defines.h PATHS ${cuda_headers} NO_DEFAULT_PATH NO_CACHE)
  find_path(AUTODIST_CCCL_HEADERS nv/target PATHS ${cuda_headers} NO_DEFAULT_PATH NO_CACHE)
  if(AUTODIST_CUDA_HEADERS AND AUTODIST_CCCL_HEADERS)
    set(AUTODIST_CUDA_INCLUDES ${cuda_headers})
  else()
    message(STATUS "No headers of CUDA beside this libtorch: GPUs sum through the host, and their "
      "steps are not recorded. pip install nvidia-cuda-crt nvidia-cuda-cccl, of torch's version of CUDA")
  endif()
endif()
