package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mistake on one platform is found, in a function of our own as in a declaration of another
// project's; what the latter has inside of a function is not looked at.
func TestCheckFindsMistakesOnOnePlatform(t *testing.T) {
	for _, tt := range []struct{ name, file, code, want string }{
		{"an unknown name in a function", "app/app_windows.go", "package app\n\nfunc f() { unknown() }\n",
			"undefined: unknown"},
		{"an import that is not used", "app/app_windows.go",
			"package app\n\nimport _ \"fmt\"\nimport \"os\"\n",
			`"os" imported and not used`},
		{"a syntax error", "app/app_windows.go", "package app\n\nfunc f() {\n", "expected '}'"},
		{"a package that is not there", "app/app_windows.go",
			"package app\n\nimport _ \"example.com/none\"\n",
			"example.com/none"},
		{"an unknown type elsewhere", "other/other_windows.go", "package other\n\nvar V unknown\n",
			"undefined: unknown"},
		{"a name that is not there elsewhere", "other/other_windows.go", "package other\n",
			"undefined: other.F"},
		{"no mistake", "other/other_windows.go", "package other\n\nfunc F() int { return unknown }\n",
			""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"app/go.mod": "module example.com/app\n\ngo 1.26.0\n\nrequire example.com/other v0.0.0\n\n" +
					"replace example.com/other => ../other\n",
				"app/app.go":             "package app\n\nimport \"example.com/other\"\n\nvar _ = other.F()\n",
				"other/go.mod":           "module example.com/other\n\ngo 1.26.0\n",
				"other/other_linux.go":   "package other\n\nfunc F() int { return 1 }\n",
				"other/other_windows.go": "package other\n\nfunc F() int { return 1 }\n",
				tt.file:                  tt.code,
			} {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
			}
			app := filepath.Join(dir, "app")
			c := newChecker(app)
			check := func(goos string) error {
				return c.check(app, []string{"GOWORK=off", "CGO_ENABLED=0", "GOARCH=amd64", "GOOS=" + goos},
					false, "./...")
			}
			require.NoError(t, check("linux"))
			if err := check("windows"); tt.want == "" {
				require.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.want)
			}
		})
	}
}

// A module that stands alone has what its own go.mod and go.sum name, and what the root has now.
func TestStandaloneFindsWhatAModuleLacks(t *testing.T) {
	for _, tt := range []struct{ name, file, old, new, want string }{
		{name: "nothing"},
		{"a requirement", "go.mod", "\tgithub.com/prometheus/client_model ", "\t// ",
			"updates to go.mod needed"},
		{"a sum", "go.sum", "github.com/prometheus/client_model ", "example.com/other ",
			"missing go.sum entry"},
		{"a name of the root", "collector.go", ".PrometheusName", ".NameForPrometheus",
			"NameForPrometheus"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const dir = "metrics/weirprom"
			tree := prometheus(t, repo(t).Dir)
			if tt.want == "" {
				require.NoError(t, standalone(tree, dir))
				return
			}
			name := filepath.Join(tree.Dir, dir, tt.file)
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Contains(t, string(text), tt.old)
			require.NoError(t, os.WriteFile(name,
				[]byte(strings.ReplaceAll(string(text), tt.old, tt.new)), 0o644))
			assert.ErrorContains(t, standalone(tree, dir), tt.want)
		})
	}
}
