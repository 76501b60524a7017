// Engines of the oracle that one process serves, each at a port of its own.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "oracle/engine.h"

namespace fo::pipeline {

class Hosts {
 public:
  Hosts(const boost::asio::any_io_executor& executor, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      engines_.push_back(std::make_unique<oracle::Engine>(executor, oracle::EngineOptions{}));
      urls_.push_back("http://127.0.0.1:" + std::to_string(engines_.back()->listen("127.0.0.1:0")));
    }
  }

  [[nodiscard]] const std::vector<std::string>& urls() const { return urls_; }
  [[nodiscard]] oracle::Engine& engine(std::size_t index) { return *engines_.at(index); }
  /// Changes what each engine does.
  template <typename Change>
  void each(const Change& change) {
    for (const auto& engine : engines_) change(engine->knobs());
  }

 private:
  std::vector<std::unique_ptr<oracle::Engine>> engines_;
  std::vector<std::string> urls_;
};

}  // namespace fo::pipeline
