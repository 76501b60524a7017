#include "input.h"

#include <unistd.h>

#include "os/file/file.h"
#include "os/file/input.h"

namespace fo::fo_reg {

std::string input_name(const std::string& file) { return file == "-" ? "standard input" : file; }

std::string read_input(const std::string& file, base::ByteCount limit) {
  return file == "-" ? os::read_all(STDIN_FILENO, "read standard input", limit)
                     : os::read_file(file, limit);
}

}  // namespace fo::fo_reg
