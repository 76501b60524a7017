// Filters files of manifests: workers with failover are replaced by the objects that run them,
// everything else passes. Pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pod/dgd/budget.h"
#include "pod/finding.h"
#include "pod/generate/explanation.h"
#include "pod/generate/generate.h"
#include "pod/input_objects.h"
#include "yaml/reader.h"

namespace fo::pod {

struct Manifest {
  yaml::Node root;
  /// The text in the input; "" for generated or changed objects.
  std::string source;
  /// True if the object was generated, not copied from the input.
  bool generated = false;
  /// Comments to write before it if `source` is "": those before its document in the input; for
  /// further objects of a document, only Helm's "# Source:".
  std::string head;
};

/// One file.
struct Filtered {
  /// In order; generated objects take the position of their document. Lists (kind: List) keep their
  /// form unless an item is replaced; then they are split.
  std::vector<Manifest> manifests;
  Findings findings;
  /// The findings about the config of a KRM function, outside any graph deployment.
  Findings others;
  /// One for every graph deployment, in order; with the same findings as above.
  std::vector<DgdExplanation> explanations;

  /// True if there is an error among the findings; then the manifests must not be used.
  [[nodiscard]] bool failed() const;
  /// Whether every manifest is an unchanged object of the input.
  [[nodiscard]] bool untouched() const;
};

/// A graph deployment whose services all fail over is replaced; otherwise it stays, without those
/// services. `inputs` are objects that the documents may refer to. `budget` covers all that a run
/// generates; a finding reports where it was exceeded.
Filtered filter(const std::vector<yaml::Document>& documents,
                const std::shared_ptr<const InputObjects>& inputs, const GenerateOptions& options,
                Budget& budget);

}  // namespace fo::pod
