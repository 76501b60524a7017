#include <nlohmann/json.hpp>

#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "commands.h"
#include "fleet/card/digest_cache.h"
#include "fleet/card/model_card.h"

namespace fo::fo_reg {

base::ExitStatus card(const Options& options) {
  fleet::ModelCardOptions wanted = options.card;
  wanted.digests.cache_folder = fleet::default_cache_folder();
  fleet::Card card;
  {
    cli::Progress progress(options.common.quiet);
    wanted.digests.on_progress = [&](base::ByteCount done, base::ByteCount total) {
      progress.show(done, total);
    };
    card = fleet::model_card(wanted);
  }
  constexpr int kIndent = 2;
  cli::print(fleet::to_json(card).dump(options.common.json ? -1 : kIndent) + "\n");
  return base::ExitStatus::kOk;
}

}  // namespace fo::fo_reg
