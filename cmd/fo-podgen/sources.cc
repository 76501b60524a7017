#include "sources.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "os/file.h"
#include "os/input.h"

namespace fo::fo_podgen {

Source read_source(const std::string& file) {
  constexpr pod::ReadLimits kLimits;
  Source source;
  if (file == "-") {
    source.name = "standard input";
    source.text = os::read_all(STDIN_FILENO, "read standard input", kLimits.bytes);
  } else {
    source.name = file;
    source.text = os::read_file(file, kLimits.bytes);
  }
  source.documents = pod::read_yaml(source.text, source.name, kLimits);
  return source;
}

}  // namespace fo::fo_podgen
