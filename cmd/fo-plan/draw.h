// Draws a table with gnuplot.
#pragma once

#include <string>
#include <vector>

#include "sweep.h"

namespace fo::fo_plan {

/// Writes an SVG of the verb's first result by the swept parameter. `path` is replaced by the whole
/// file or not at all. Throws Error: kUnavailable if gnuplot is not installed or fails, kTryAgain
/// if it does not end in a minute; else what write_file_atomic throws.
void draw(const Verb& verb, const Sweep& sweep, const std::vector<Row>& rows,
          const std::string& path);

}  // namespace fo::fo_plan
