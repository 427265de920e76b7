# libFuzzer targets for what parses bytes; clang only:
#   cmake -S . -B build/fuzz -DCMAKE_CXX_COMPILER=clang++-14 -DAUTODIST_FUZZ=ON -DAUTODIST_TORCH=OFF
#   cmake --build build/fuzz --target fuzzers

# autodist_fuzz_target(<name> SOURCES … LIBRARIES …)
function(autodist_fuzz_target name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
endfunction()
