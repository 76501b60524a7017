# Writes OUTPUT, the function that lib/cli/build_info.h declares: from which commit of SOURCE, by
# which COMPILER, as which KIND. Run at each build; OUTPUT keeps its time where nothing has changed.
execute_process(COMMAND git describe --always --abbrev=12 --dirty --exclude=*
  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET RESULT_VARIABLE status)
set(text "${COMPILER}, ${KIND}")
if(status EQUAL 0 AND commit)
  string(PREPEND text "${commit}, ")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[#include "cli/build_info.h"

namespace fo::cli {

std::string_view build_info() { return "@text@"; }

}  // namespace fo::cli
]])
