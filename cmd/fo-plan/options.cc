#include "options.h"

#include <CLI/CLI.hpp>

#include "base/error.h"

namespace fo::fo_plan {
namespace {

const char* type_of(Kind kind) {
  switch (kind) {
    case Kind::kFraction:
      return "FRACTION";
    case Kind::kDuration:
      return "DURATION";
    case Kind::kSize:
      return "SIZE";
    case Kind::kMeasurements:
      return "N:DURATION,...";
    case Kind::kNumber:
    case Kind::kCount:
      break;
  }
  return "N";
}

void add_parameter(CLI::App& app, Options& options, const Parameter& parameter) {
  const auto store = [&options, &parameter](const std::string& text) {
    try {
      options.inputs.set(parameter, text);
    } catch (const base::Error& error) {
      throw CLI::ValidationError(std::string("--") + parameter.name, error.what());
    }
  };
  std::string description = parameter.description;
  if (parameter.need == Need::kRequired) description += " (required)";
  CLI::Option* option =
      app.add_option_function<std::string>(std::string("--") + parameter.name, store, description)
          ->type_name(type_of(parameter.kind));
  if (parameter.preset != nullptr) option->default_str(parameter.preset);
}

void add_verb(CLI::App& app, Options& options, const Verb& verb) {
  CLI::App* sub = app.add_subcommand(verb.name, verb.description);
  sub->callback([&options, &verb] { options.verb = &verb; });
  for (const Parameter& parameter : verb.parameters) add_parameter(*sub, options, parameter);
  CLI::Option* sweep =
      sub->add_option("--sweep", options.sweep, "print a table for values of one of these options")
          ->type_name("NAME=FROM:TO:STEP");
  sub->add_flag("--csv", options.csv, "print the table as comma-separated values")->needs(sweep);
  sub->add_option("--plot", options.plot, "draw the table by gnuplot, as an SVG file")
      ->type_name("FILE")
      ->needs(sweep);
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  for (const Verb& verb : verbs()) add_verb(app, options, verb);
  app.add_subcommand("figures", "check the figures of the article \"Dynamo Fault Tolerance\"");
}

Inputs complete_inputs(const Options& options, const std::string& swept) {
  Inputs inputs = options.inputs;
  const auto is_given = [&](const std::string& name) {
    return options.inputs.is_set(name) || name == swept;
  };
  for (const Parameter& parameter : options.verb->parameters) {
    // A file that --print-config has written contains the presets, which need no other input.
    const bool is_preset = parameter.preset != nullptr && inputs.is_set(parameter.name) &&
                           inputs.texts().at(parameter.name) == parameter.preset;
    for (const char* const needed : parameter.needs) {
      if (!is_given(parameter.name) || is_preset || is_given(needed)) continue;
      throw base::Error(base::ExitStatus::kUsage,
                        std::string("--") + parameter.name + " needs --" + needed);
    }
    if (inputs.is_set(parameter.name) || parameter.name == swept) continue;
    if (parameter.preset != nullptr) {
      inputs.set(parameter, parameter.preset);
    } else if (parameter.need == Need::kRequired) {
      throw base::Error(base::ExitStatus::kUsage,
                        std::string("--") + parameter.name + " is required");
    }
  }
  return inputs;
}

}  // namespace fo::fo_plan
