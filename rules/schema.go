package rules

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of one document of a rules file, for editors that
// check and complete YAML. It accepts the documents that [Load] accepts without a warning, as far
// as a schema can express that.
func Schema() []byte { return slices.Clone(schema) }
