#include <string>

#include "cli/screen/output.h"
#include "commands.h"
#include "fleet/card/card_comparison.h"
#include "os/file/input.h"

namespace fo::fo_reg {
namespace {

fleet::Card read_card(const std::string& file) {
  return fleet::parse_card(os::read_input(file, fleet::kMaxCardBytes), os::input_name(file));
}

}  // namespace

base::ExitStatus explain(const Options& options) {
  os::check_inputs({options.card_a, options.card_b});
  const fleet::Card a = read_card(options.card_a);
  const fleet::Card b = read_card(options.card_b);
  const fleet::CardComparison comparison = fleet::compare(a, b);
  cli::print(options.common.json ? fleet::to_json(comparison) + "\n" : fleet::to_text(comparison));
  return comparison.may_all() ? base::ExitStatus::kOk : base::ExitStatus::kNo;
}

}  // namespace fo::fo_reg
