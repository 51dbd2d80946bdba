package rules

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema of one document of a rules file, draft 2020-12, for editors that
// check and complete YAML. It accepts what [Load] does without a warning that concerns a single
// document, as far as a schema can tell.
func Schema() []byte { return slices.Clone(schema) }
