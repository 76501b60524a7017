#include "options.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/options.h"
#include "commands.h"
#include "pod/generate/generate_options.h"

namespace fo::fo_podgen {
namespace {

using Format = Options::Format;

CLI::Option* add_word(CLI::App& app, Options& options, const std::string& name, const char* type,
                      const char* description) {
  return app
      .add_option_function<std::string>(
          "--" + name,
          [&options, name](const std::string& value) {
            try {
              pod::set_option(options.generate, name, value);
            } catch (const base::Error& error) {
              throw CLI::ValidationError(std::string("--") + error.what());
            }
          },
          description)
      ->type_name(type);
}

CLI::Option* add_files(CLI::App& app, Options& options) {
  return cli::add_list(app, "-f,--file", options.files, "read this file, - for stdin; repeatable",
                       "FILE")
      ->default_str("-");
}

// The options for the pod, in the order of use.
void add_pod_options(CLI::App& app, Options& options) {
  add_word(app, options, "layout", "LAYOUT", "plan, or dynamo: as NVIDIA's operator names things")
      ->check(cli::example_words({"plan", "dynamo"}))
      ->default_str("plan");
  add_word(app, options, "kind", "KIND", "deployment or pod")
      ->check(cli::example_words({"deployment", "pod"}))
      ->default_str("deployment");
  add_word(app, options, "kube-version", "X.Y", "version of the cluster")->default_str("1.34");
  add_word(app, options, "gpu-sharing", "HOW", "dra, or device-plugin: limits nvidia.com/gpu")
      ->check(cli::example_words({"dra", "device-plugin"}))
      ->default_str("dra");
  add_word(app, options, "lock", "LOCK", "flock, or lockd: a lock server in the pod")
      ->check(cli::example_words({"flock", "lockd"}))
      ->default_str("flock");
  add_word(app, options, "gms", "GMS", "ours, or upstream: Dynamo's module (default: by image)")
      ->check(cli::example_words({"ours", "upstream"}));
  add_word(app, options, "tools-image", "IMAGE",
           "image with the tools, for engine images without them");
  app.add_flag("--supervise", options.generate.supervise, "run the engines under fo-shadow");
  add_word(app, options, "engine", "KIND",
           "of --supervise: vllm, sglang, dynamo, cold; else: dynamo (default: by command)")
      ->check(cli::example_words({"vllm", "sglang", "dynamo", "cold"}));
  add_word(app, options, "operator-defaults", "BOOL", "add what Dynamo's operator adds to pods")
      ->check(cli::example_words({"true", "false"}))
      ->default_str("true");
}

CLI::App* add_command(CLI::App& app, Options& options,
                      base::ExitStatus (*run)(const Options& options), const char* name,
                      const char* description) {
  CLI::App* sub = app.add_subcommand(name, description);
  sub->callback([&app, &options, run, name] {
    options.run = run;
    for (const char* const other : {"--output", "--output-dir", "--only", "--generated-only"}) {
      if (app.get_option(other)->count() > 0) {
        throw CLI::ValidationError(std::string(other), std::string("cannot be used with ") + name);
      }
    }
    if (run != fo_podgen::check && app.get_option("--file")->count() > 0) {
      throw CLI::ValidationError("--file", std::string("cannot be used with ") + name);
    }
  });
  return sub;
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(0, 1);
  options.run = generate;
  add_files(app, options);
  CLI::Option* output =
      cli::add_choice(app, "-o,--output", options.format,
                      {{"json", Format::kJson}, {"name", Format::kName}, {"yaml", Format::kYaml}},
                      "yaml, json or name", "FORMAT");
  app.final_callback([&options, output] {
    if (options.common.json && output->count() == 0) options.format = Format::kJson;
  });
  app.add_option("--output-dir", options.output_dir, "write a file for each object there")
      ->type_name("DIR");
  cli::add_list(app, "--only", options.only, "write these objects only; repeatable", "KIND[/NAME]");
  app.add_flag("--generated-only", options.generated_only,
               "leave out objects that are only copied");
  add_pod_options(app, options);

  CLI::App* check = add_command(app, options, fo_podgen::check, "check",
                                "report what generate would refuse, and why");
  add_files(*check, options);
  check->add_flag("--strict", options.strict, "exit with 65 for warnings, too");
  add_pod_options(*check, options);
  CLI::App* diff = add_command(app, options, fo_podgen::diff, "diff",
                               "show how the objects of two files differ");
  diff->add_option("OLD", options.before, "a file, - for stdin")->required()->type_name("FILE");
  diff->add_option("NEW", options.after, "a file, - for stdin")->required()->type_name("FILE");
  add_pod_options(*diff, options);
  CLI::App* install = add_command(app, options, fo_podgen::install, "install",
                                  "copy the tools: for an init container");
  install->add_option("DIR", options.folder, "where bin and libexec are created")
      ->required()
      ->type_name("DIR");
}

}  // namespace fo::fo_podgen
