#include "weights/file/model_index.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "json/scanner.h"

namespace fo::weights {
namespace {

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

std::map<std::string, std::string> parse_model_index(std::string_view text,
                                                     const std::string& file) {
  using json::Scanner;
  std::optional<std::map<std::string, std::string>> files;
  const auto read_tensor = [&](Scanner& scanner, std::string_view name) {
    const auto refuse = [&](const std::string& reason) {
      json::refuse_file(file, "tensor " + base::quoted(name) + ": " + reason);
    };
    if (scanner.kind() != Scanner::Kind::kText)
      refuse(std::string("its file is ") + scanner.describe());
    std::string value = scanner.text();
    if (!is_plain_name(value)) refuse("its file " + base::quoted(value) + " is not a file name");
    if (!files->emplace(name, std::move(value)).second) refuse("it appears twice");
  };
  // Reads {"weight_map": {"tensor": "file", ..}} and skips everything else.
  json::scan_file(text, file, [&](Scanner& scanner) {
    if (scanner.kind() != Scanner::Kind::kObject) {
      scanner.skip();
      return;
    }
    scanner.object([&](std::string_view key) {
      if (key != "weight_map") {
        scanner.skip();
        return;
      }
      if (files) json::refuse_file(file, "weight_map appears twice");
      files.emplace();
      if (scanner.kind() != Scanner::Kind::kObject)
        json::refuse_file(file, std::string("weight_map is ") + scanner.describe());
      scanner.object([&](std::string_view name) { read_tensor(scanner, name); });
    });
  });
  if (!files) json::refuse_file(file, "missing weight_map");
  return *std::move(files);
}

}  // namespace fo::weights
