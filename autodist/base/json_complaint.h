// What a JSON library's exception says of a text, for people who have not written the reader.

#pragma once

#include <exception>
#include <string>

namespace autodist {

// "parse error at line 2, column 1: …", "key 'nodes' not found", "an object expected, but it is
// array": without the library's own name for it, and without the bytes that it met, which may be
// any.
inline std::string json_complaint(const std::exception& error) {
  std::string text = error.what();
  if (text.rfind("[json.", 0) == 0) text.erase(0, text.find("] ") + 2);
  text = text.substr(0, text.find("; last read"));
  const std::string no_object = "cannot use at() with ";
  if (text.rfind(no_object, 0) == 0) {
    text = "an object expected, but it is " + text.substr(no_object.size());
  }
  return text;
}

}  // namespace autodist
