package main

import (
	"encoding/hex"
	"encoding/json"
	"strings"
)

// bom is a bill of materials, as far as it is written here, in the form of CycloneDX 1.5:
// https://cyclonedx.org/docs/1.5/json/. It has no serial number and no time, so that equal programs
// have equal bills.
type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

// component is a program or a module. Ref is its package URL.
type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	URL        string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// buildSettings are those that say which build of the program it is, and of which commit.
var buildSettings = []string{
	"GOOS", "GOARCH", "CGO_ENABLED", "vcs.revision", "vcs.time", "vcs.modified",
}

// bomOf returns the bill of materials of a program.
func bomOf(p *program) ([]byte, error) {
	main := componentOf("application", p.main)
	main.Name = p.path
	if inside, ok := strings.CutPrefix(p.path, p.main.path+"/"); ok {
		main.URL += "#" + inside
	}
	main.Ref = main.URL
	main.Hashes = []hash{{"SHA-256", hex.EncodeToString(p.sha256)}}
	for _, name := range buildSettings {
		if v := p.settings[name]; v != "" {
			main.Properties = append(main.Properties, property{"go:" + name, v})
		}
	}
	b := bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{main}}
	for _, m := range p.modules {
		b.Components = append(b.Components, componentOf("library", m))
	}
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}

func componentOf(kind string, m module) component {
	// The letters of a package URL of Go are small: https://github.com/package-url/purl-spec
	url := "pkg:golang/" + strings.ToLower(m.path)
	if m.version != "" {
		url += "@" + strings.ReplaceAll(m.version, "+", "%2B")
	}
	c := component{Type: kind, Ref: url, Name: m.path, Version: m.version, URL: url}
	if m.sum != "" { // which is no hash of a file
		c.Properties = []property{{"go:sum", m.sum}}
	}
	return c
}
