#include "base/exit_status.h"
#include "canary/alerts/alerts.h"
#include "cli/screen/output.h"
#include "commands.h"

namespace fo::fo_canary {

int rules(const Options& options) {
  // promtool looks for the rules beside the file of tests.
  cli::print(options.print_tests ? canary::rule_tests_yaml("fo-rules.yaml", options.for_seconds)
                                 : canary::rules_yaml(options.for_seconds));
  return base::to_int(base::ExitStatus::kOk);
}

}  // namespace fo::fo_canary
