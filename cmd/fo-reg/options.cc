#include "options.h"

#include <CLI/CLI.hpp>
#include <cstddef>

#include "base/error.h"
#include "base/units.h"
#include "cli/config/variables.h"
#include "cli/options.h"
#include "commands.h"
#include "text/dns_name.h"

namespace fo::fo_reg {
namespace {

// CLI11 would accept "-1" as a large number.
CLI::Validator whole_number() {
  return CLI::Validator(
      [](std::string& text) {
        return base::parse_uint(text) ? std::string() : "'" + text + "' is not a whole number";
      },
      "");
}

void declare_id(CLI::App& app, Options& options) {
  cli::add_list(app, "-f,--file", options.files, "read this file, - for stdin; repeatable", "FILE")
      ->default_str("-");
  app.add_option("--endpoint", options.endpoint, "the last part of the ids")
      ->capture_default_str()
      ->type_name("NAME");
}

void declare_card(CLI::App& app, Options& options) {
  fleet::ModelCardOptions& card = options.card;
  fleet::Card& given = card.given;
  app.add_option("MODEL_DIR", card.folder, "a Hugging Face folder")->required()->type_name("DIR");
  const auto add_ids = [&app](const char* name, std::vector<std::uint64_t>& ids,
                              const char* description) {
    app.add_option(name, ids, description)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(whole_number())
        ->type_name("ID,...");
  };
  cli::add_text(app, "--name", given.name, "the model's name in requests (default: the folder's)",
                "NAME");
  cli::add_list(app, "--alias", given.aliases, "another name of the model in requests; repeatable",
                "NAME");
  cli::add_text(app, "--dtype", given.dtype, "the engine's data type (default: config.json)",
                "DTYPE");
  cli::add_text(app, "--quantization", given.quantization, "method (default: config.json)",
                "METHOD");
  cli::add_number(app, "--context-length", given.context_length,
                  "tokens of prompt and answer (default: config.json)")
      ->default_str("");
  cli::add_text(app, "--revision", given.revision, "default: of the folder", "REVISION");
  cli::add_text(app, "--tokenizer", card.tokenizer, "another folder with the tokenizer", "DIR");
  cli::add_text(app, "--chat-template", card.chat_template, "replaces the tokenizer's template",
                "FILE");
  cli::add_text(app, "--generation-config", card.generation_config,
                "replaces generation_config.json", "FILE");
  cli::add_text(app, "--reasoning-parser", card.reasoning_parser,
                "the engine's parser of reasoning", "NAME");
  cli::add_text(app, "--tool-call-parser", card.tool_parser, "the engine's parser of tool calls",
                "NAME");
  cli::add_text(app, "--draft", given.draft, "the model of speculative decoding", "NAME");
  cli::add_list(app, "--adapter", options.adapters, "a LoRA adapter and its folder; repeatable",
                "NAME=DIR");
  cli::add_text(app, "--kv-abi", given.kv_abi, "KV cache format, equal for prefill and decode",
                "TEXT");
  add_ids("--end-of-thinking", given.end_of_thinking, "the token ids that end the thinking");
  add_ids("--stop-ids", given.stop_ids, "token ids that end an answer (default: eos_token_id)");
  app.add_flag("--verify", card.digests.verify, "read all weights, also if their hash is known");
  cli::add_variables(app, {"HOME", "XDG_CACHE_HOME"});
}

void declare_explain(CLI::App& app, Options& options) {
  app.add_option("A", options.card_a, "a card, - for stdin")->required()->type_name("FILE");
  app.add_option("B", options.card_b, "a card, - for stdin")->required()->type_name("FILE");
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  using cli::add_command;
  declare_id(
      *add_command(app, options.run, id, "id", "print the endpoint ids of a DynamoGraphDeployment"),
      options);
  declare_card(*add_command(app, options.run, card, "card", "print the card of a model"), options);
  declare_explain(*add_command(app, options.run, explain, "explain",
                               "show how two cards differ, and the consequences"),
                  options);
  const auto add = [&](base::ExitStatus (*command)(const Options&), const char* name,
                       const char* description, void (*declare_own)(CLI::App&, RecordOptions&)) {
    CLI::App* sub = add_command(app, options.run, command, name, description);
    if (declare_own != nullptr) declare_own(*sub, options.records);
    declare_registry(*sub, options.records);
  };
  add(run, "run", "run a worker, and register it as long as it runs", declare_run);
  add(put, "put", "register a worker that another program runs, or write a record", declare_put);
  add(rm, "rm", "deregister a worker, or remove a record", declare_selection);
  add(drain, "drain", "stop new requests for a worker; present ones finish", declare_selection);
  add(undrain, "undrain", "undo drain", declare_selection);
  add(set, "set", "set or remove labels of a worker", declare_set);
  add(ls, "ls", "list records; exit 1 without any", declare_prefix);
  add(get, "get", "print a record; exit 1 if it is missing", declare_get);
  add(watch, "watch", "print the records, and every change, as JSON lines", declare_prefix);
  add(check_registry, "check", "check that the registry can be used", nullptr);
}

void check(Options& options) {
  if (!text::is_dns_label(options.endpoint)) {
    refuse("--endpoint: " + base::quoted(options.endpoint) +
           " is not a DNS label: " + text::kDnsLabelRule);
  }
  for (const std::string& adapter : options.adapters) {
    const std::size_t equals = adapter.find('=');
    if (equals == 0 || equals + 1 >= adapter.size() || equals == adapter.npos) {
      refuse("--adapter: " + base::quoted(adapter) + " is not NAME=DIR");
    }
    if (!options.card.adapters.emplace(adapter.substr(0, equals), adapter.substr(equals + 1))
             .second) {
      refuse("--adapter: " + base::quoted(adapter.substr(0, equals)) + " appears twice");
    }
  }
}

}  // namespace fo::fo_reg
