#include "json/reader.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace fo::json {

void refuse_file(const std::string& file, const std::string& reason) {
  throw base::Error(base::ExitStatus::kBadData, "read " + base::quoted(file) + ": " + reason);
}

class JsonReader::Sax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Sax(JsonReader& reader) : reader_(reader) {}

  bool key(std::string& name) override {
    if (reader_.skipped_ == 0) {
      reader_.key_ = std::move(name);
      reader_.on_key();
    }
    return true;
  }
  bool start_object(std::size_t) override { return start({Kind::kObject, "an object"}); }
  bool start_array(std::size_t) override { return start({Kind::kList, "a list"}); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool string(std::string& text) override { return scalar({Kind::kText, "text", std::move(text)}); }
  bool number_unsigned(number_unsigned_t number) override {
    return scalar({Kind::kNumber, "a number", {}, number});
  }
  bool null() override { return scalar({Kind::kOther, "null"}); }
  bool boolean(bool) override { return scalar({Kind::kOther, "a boolean"}); }
  bool number_integer(number_integer_t) override {
    return scalar({Kind::kOther, "a negative number"});
  }
  bool number_float(number_float_t, const std::string&) override {
    return scalar({Kind::kOther, "a number that is not a non-negative integer"});
  }
  bool binary(binary_t&) override { return scalar({Kind::kOther, "binary data"}); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    reader_.refuse_at(position);
  }

 private:
  bool scalar(JsonValue value) {
    if (reader_.skipped_ == 0) reader_.on_value(std::move(value));
    return true;
  }
  bool start(JsonValue value) {
    if (reader_.skipped_ == 0 && reader_.on_value(std::move(value))) {
      ++reader_.depth_;
    } else {
      ++reader_.skipped_;
    }
    return true;
  }
  bool end() {
    if (reader_.skipped_ > 0) {
      --reader_.skipped_;
    } else {
      --reader_.depth_;
      reader_.on_end();
    }
    return true;
  }

  JsonReader& reader_;
};

void JsonReader::read(std::string_view text) {
  // nlohmann::json reads a NUL as the end of the text.
  if (const auto nul = text.find('\0'); nul != text.npos) refuse_at(nul + 1);
  Sax sax(*this);
  nlohmann::json::sax_parse(text, &sax);
}

void JsonReader::refuse_at(std::size_t position) const {
  refuse_file(file_, subject_ + "not JSON at byte " + std::to_string(position));
}

}  // namespace fo::json
