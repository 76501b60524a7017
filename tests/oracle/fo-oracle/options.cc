#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "cli/config/variables.h"
#include "cli/options.h"

namespace fo::oracle_tool {
namespace {

using oracle::Fault;
using oracle::Knob;

void add_member(CLI::App& app, const std::string& name, const Knob& knob, base::Duration& value) {
  cli::add_duration(app, name, value, std::string(knob.help));
}

void add_member(CLI::App& app, const std::string& name, const Knob& knob, std::uint64_t& value) {
  app.add_option(name, value, std::string(knob.help))
      ->check(CLI::Range(knob.min, knob.max).description(""))
      ->capture_default_str()
      ->type_name("N");
}

void add_member(CLI::App& app, const std::string& name, const Knob& knob, double& value) {
  app.add_option(name, value, std::string(knob.help))
      ->check(
          CLI::Range(static_cast<double>(knob.min), static_cast<double>(knob.max)).description(""))
      ->capture_default_str()
      ->type_name("N");
}

void add_member(CLI::App& app, const std::string& name, const Knob& knob, bool& value) {
  app.add_flag(name, value, std::string(knob.help));
}

void add_member(CLI::App& app, const std::string& name, const Knob& knob, std::string& value) {
  app.add_option(name, value, std::string(knob.help))
      ->check(CLI::IsMember(knob.words))
      ->capture_default_str()
      ->type_name("WORD");
}

void add_member(CLI::App& app, const std::string& name, const Knob& knob, Fault& value) {
  app.add_option_function<std::string>(
         name,
         [&value](const std::string& text) {
           try {
             value = oracle::parse_fault(text);
           } catch (const base::Error& error) {
             throw CLI::ValidationError(error.what());
           }
         },
         std::string(knob.help))
      ->default_str(oracle::to_text(value))
      ->type_name("FAULT");
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  oracle::EngineOptions& engine = options.engine;
  app.add_option("--host", options.host, "numeric address to listen on")
      ->capture_default_str()
      ->type_name("HOST");
  app.add_option("--port", options.port, "port to listen on; 0: any")
      ->capture_default_str()
      ->type_name("PORT");
  app.add_option("--model", engine.model.name, "the name of the model")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_option("--adapter", engine.model.adapters, "the name of an adapter of the model")
      ->type_name("NAME");
  const auto add_number = [&app](const char* name, std::uint64_t& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str()->type_name("N");
  };
  add_number("--seed-of-weights", engine.model.weights.seed, "other weights give other tokens");
  add_number("--max-model-len", engine.model.max_model_len, "tokens of a prompt and its answer")
      ->check(CLI::Range(1, 1 << 30).description(""));
  add_number("--kv-tokens", engine.kv_tokens, "capacity of the KV cache")
      ->check(CLI::Range(1, 1 << 30).description(""));
  add_number("--thinking-tokens", engine.model.weights.thinking_tokens,
             "with --reasoning: tokens before the answer");
  add_number("--seed", engine.chance, "seed of jitter, random chunks and places of faults");
  for (const Knob& knob : oracle::all_knobs()) {
    std::string name = "--" + std::string(knob.name);
    std::ranges::replace(name, '_', '-');
    std::visit([&](auto member) { add_member(app, name, knob, engine.knobs.*member); },
               knob.member);
  }
  cli::add_variables(app, {"NOTIFY_SOCKET", "WATCHDOG_*"});
}

}  // namespace fo::oracle_tool
