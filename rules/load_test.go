package rules_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/rules"
)

// TestFiles has a row for each rule about which files are read.
func TestFiles(t *testing.T) {
	one := "domain: one\n"
	for _, row := range []struct {
		name  string
		fsys  fstest.MapFS
		paths []string
		want  []string // domains
	}{
		{"*.yaml and *.yml, in the order of their names",
			files("b.yml", "domain: b", "a.yaml", "domain: a"), nil, []string{"a", "b"}},
		{"subdirectories", files("x/y/a.yaml", one), nil, []string{"one"}},
		{"other files are ignored", files("a.yaml", one, "README.txt", "hello", "b.json", "{}"), nil,
			[]string{"one"}},
		{"dot entries, as in a ConfigMap, are ignored",
			files("a.yaml", one, "..data/a.yaml", one, ".b.yaml", one), nil, []string{"one"}},
		{"a named file may have any name", files("rules.txt", one), []string{"rules.txt"},
			[]string{"one"}},
		{"a named dot file", files(".rules", one), []string{".rules"}, []string{"one"}},
		{"a named directory", files("x/a.yaml", one, "y/a.yaml", one), []string{"x"}, []string{"one"}},
		{"a file named twice is read once", files("x/a.yaml", one), []string{"x/a.yaml", "x"},
			[]string{"one"}},
		{"every document", files("a.yaml", "domain: a\n---\ndomain: b\n---\n"), nil, []string{"a", "b"}},
		{"a document after comments", files("a.yaml", "---\n# c\n---\ndomain: b\n"), nil, []string{"b"}},
		{"no file at all", files(), nil, []string{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			set, err := rules.Load(row.fsys, row.paths...)
			require.NoError(t, err)
			assert.Equal(t, row.want, set.Domains())
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	_, err := rules.Load(files("a.yaml", "domain: a"), "a.yaml", "b.yaml", "c")
	assert.EqualError(t, err, "b.yaml: file does not exist\nc: file does not exist")

	set, found := (&rules.Loader{}).Check(files("x/README", "hello"), "x")
	assert.NotNil(t, set)
	require.Len(t, found, 1)
	assert.EqualError(t, found[0], "x: warning: no *.yaml or *.yml file in this directory")
}

// TestConfigMap uses the layout of a Kubernetes volume, in which files are links through a link to
// the current directory.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := filepath.Join(dir, "..2026_11_21")
	require.NoError(t, os.Mkdir(version, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(version, "rules.yaml"), []byte("domain: a\n"),
		0o644))
	require.NoError(t, os.Symlink("..2026_11_21", filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/rules.yaml", filepath.Join(dir, "rules.yaml")))
	set, err := rules.LoadFiles(dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, set.Domains())

	require.NoError(t, os.Symlink("..data", filepath.Join(dir, "more.yaml")))
	_, err = rules.LoadFiles(dir)
	assert.ErrorContains(t, err, "more.yaml: is a symbolic link to a directory, which is not followed")
}

func TestMergeDomains(t *testing.T) {
	a := "domain: d\ndescriptors: [{key: k, value: 'a*', rate_limit: {unit: day, " +
		"requests_per_unit: 1}}]\n"
	b := "domain: d\ndescriptors: [{key: k, value: '*b', rate_limit: {unit: day, " +
		"requests_per_unit: 2}}]\n"
	fsys := files("1.yaml", a, "2.yaml", b)
	_, err := rules.Load(fsys)
	assert.EqualError(t, err,
		"2.yaml:1:9: duplicate domain 'd' in config file; the first is in 1.yaml, line 1")

	set, err := (&rules.Loader{MergeDomains: true}).Load(fsys)
	require.NoError(t, err)
	assert.Equal(t, 2, set.Len())
	assert.Equal(t, "k=a*", set.Match("d", entries(t, "k=ab")).Path,
		"the first file's wildcards come first")

	_, err = (&rules.Loader{MergeDomains: true}).Load(files("1.yaml", a, "2.yaml", a))
	assert.EqualError(t, err,
		"2.yaml:2:15: duplicate descriptor composite key 'd.k_a*'; the first is in 1.yaml, line 2; for a second "+
			"limit, add a generic_key to the actions of another item of rate_limits, and a descriptor with that key")
}

// TestYAML uses the features of YAML beyond maps and lists.
func TestYAML(t *testing.T) {
	set := load(t, `
domain: 10
descriptors:
  - &first
    key: k
    value: 010
    rate_limit: &limit {unit: HOUR, requests_per_unit: 1_000}
  - <<: *first
    value: yes
  - key: 2020-01-01
    rate_limit:
      <<: [{unlimited: off}, *limit]
      requests_per_unit: 0x10
  - {key: l, shadow_mode: on, rate_limit: *limit}
  - {key: "quo\"ted", value: "1.5", rate_limit: {unit: Week, requests_per_unit: +7}}
  - key: m
    rate_limit: &daily {<<: *limit, unit: day}
  - {key: n, rate_limit: {<<: *daily}}
`)
	assert.Equal(t, []string{"10"}, set.Domains())
	for _, row := range []struct {
		name, path string
		limit      string
	}{
		{"a number keeps its text", "k=010", "1000 per hour"},
		{"a merged map does not replace the map's own keys", "k=yes", "1000 per hour"},
		{"several maps merged", "2020-01-01=x", "16 per hour"},
		{"an alias", "l=x", "1000 per hour"},
		{"a map with keys of its own after a merge key", "m=x", "1000 per day"},
		{"a merged map with keys of its own after a merge key", "n=x", "1000 per day"},
		{"quoted", `"quo\"ted"="1.5"`, "7 per week"},
	} {
		r := set.Match("10", entries(t, row.path))
		if assert.NotNil(t, r, row.name) {
			assert.Equal(t, row.limit, r.Limit.String(), row.name)
		}
	}
	assert.True(t, set.Match("10", entries(t, "l")).Shadow)
}

// TestAliasBombs uses short files that become very long when their aliases are expanded.
func TestAliasBombs(t *testing.T) {
	lists := "domain: d\ndescriptors:\n  - key: k\n    metadata:\n      a0: &a0 " +
		"[x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		n, m := string(rune('0'+i)), string(rune('1'+i))
		lists += "      a" + m + ": &a" + m + " [*a" + n + ",*a" + n + ",*a" + n + ",*a" + n + ",*a" + n +
			",*a" + n + ",*a" + n + ",*a" + n + ",*a" + n + ",*a" + n + "]\n"
	}
	long := ""
	for i := range 400 {
		long += "k" + strconv.Itoa(i) + ": 1, "
	}
	for name, text := range map[string]string{
		"metadata":               lists,
		"a list of itself":       "domain: d\ndescriptors: &x\n  - key: k\n    descriptors: *x\n",
		"metadata of itself":     "domain: d\ndescriptors:\n  - key: k\n    metadata: &x {a: *x}\n",
		"a merge of itself":      "domain: d\n<<: &x {<<: *x}\n",
		"stray keys of itself":   "domain: d\ndescriptors:\n  - key: k\n    name: &x {key: *x}\n",
		"descriptors, ten times": bomb(),
		"a long map, merged": "domain: d\ndescriptors:\n  - key: k\n    metadata:\n      a: &a {" + long +
			"}\n      b: {<<: [" + strings.Repeat("*a, ", 2_000) + "]}\n",
		"a long map as an action": "domain: d\nrate_limits:\n  - actions: [&a {" + long + "}, " +
			strings.Repeat("*a, ", 2_000) + "]\n",
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, err := rules.Load(files("r.yaml", text))
			if name != "a merge of itself" && name != "stray keys of itself" {
				assert.Error(t, err)
			}
			if strings.HasPrefix(name, "a long map") {
				assert.EqualError(t, err, "r.yaml:1:1: error loading config file: aliases make it more than "+
					strconv.Itoa(100_000+20*len(text))+" nodes long")
			}
			assert.Less(t, time.Since(began), time.Minute)
		})
	}
}

func bomb() string {
	text := "domain: d\ndescriptors:\n  - key: k\n    descriptors: &a0 [{key: a}, {key: b}]\n"
	for i := range 9 {
		n, m := string(rune('0'+i)), string(rune('1'+i))
		text += "  - key: k" + m + "\n    descriptors: &a" + m + "\n"
		for j := range 10 {
			text += "      - {key: k" + string(rune('0'+j)) + ", descriptors: *a" + n + "}\n"
		}
	}
	return text
}

func TestAll(t *testing.T) {
	set := load(t, house)
	var paths []string
	for r := range set.All() {
		paths = append(paths, r.Path)
		assert.Equal(t, "d", r.Domain)
	}
	assert.Len(t, paths, set.Len())
	assert.Equal(t, []string{"one", "ten", "hourly", "shared=a*", "sharedabove=a*,user"}, paths[:5])
	for range set.All() {
		break // leaving the loop early must work
	}
}

func TestRule(t *testing.T) {
	set := load(t, `
domain: d
descriptors:
  - key: a
    value_to_metric: true
    descriptors:
      - key: b
        detailed_metric: true
        metadata: {owner: me, list: [1, 2.5, -3, yes, null, "x"], weir: {algorithm: sliding_log}}
        rate_limit: {unit: day, unit_multiplier: 2, requests_per_unit: 5, name: n, replaces: [{name: n2}, {name: n3}]}
`)
	r := set.Match("d", entries(t, "a=1,b=2"))
	assert.Equal(t, "n", r.Name())
	assert.Equal(t, "a,b", r.Path)
	assert.Equal(t, []string{"n2", "n3"}, r.Replaces)
	written, err := set.YAML()
	require.NoError(t, err)
	assert.Contains(t, string(written), "value_to_metric: true")
	assert.Contains(t, string(written), "detailed_metric: true")
	assert.Equal(t, 48*time.Hour, r.Limit.Period())
	assert.Equal(t, map[string]any{"owner": "me",
		"list": []any{int64(1), 2.5, int64(-3), true, nil, "x"}},
		r.Metadata())
	assert.Equal(t, "a,b: 5 per 2 days by sliding_log, replaces n2, n3 (named n) at r.yaml:7",
		r.String())
	assert.Equal(t, 7, r.Line)
}

// TestMetadataKeys loads keys that YAML 1.1 does not read as strings. Each is its text, at every
// level and from a merged map, also after the rules are written and loaded again.
func TestMetadataKeys(t *testing.T) {
	set := load(t, `
domain: d
descriptors:
  - key: k
    metadata: {1: a, n: b, on: c, .nan: d, 2026-01-01: e, in: {0x10: f, no: {.inf: g}}, <<: {off: h, 1: x}}
    rate_limit: {unit: day, requests_per_unit: 5}
`)
	want := map[string]any{"1": "a", "n": "b", "on": "c", ".nan": "d", "2026-01-01": "e", "off": "h",
		"in": map[string]any{"0x10": "f", "no": map[string]any{".inf": "g"}}}
	assert.Equal(t, want, set.Match("d", entries(t, "k=v")).Metadata())
	assert.Equal(t, want, rewritten(t, set).Match("d", entries(t, "k=v")).Metadata())
}

func TestMatchAllocatesNothing(t *testing.T) {
	set := tree(t, "k=a*", " l=w!", "k", " l!", "m=*x*y!")
	deep, wild := entries(t, "k=ab,l=w"), entries(t, "m=axbyczy")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		set.Match("d", deep)
		set.Match("d", wild)
		set.Match("e", wild)
	}))
}

func TestEntries(t *testing.T) {
	for _, row := range []struct {
		text string
		want []rules.Entry
		back string // the result of FormatEntries; "" means text
	}{
		{"k", []rules.Entry{{Key: "k"}}, ""},
		{"k=v,l=w", []rules.Entry{{Key: "k", Value: "v"}, {Key: "l", Value: "w"}}, ""},
		{"k=", []rules.Entry{{Key: "k"}}, "k"},
		{"path=/a?b=c", []rules.Entry{{Key: "path", Value: "/a?b=c"}}, `path="/a?b=c"`},
		{`"k,1"="a b"`, []rules.Entry{{Key: "k,1", Value: "a b"}}, ""},
		{`k="\xff\n"`, []rules.Entry{{Key: "k", Value: "\xff\n"}}, ""},
		{`k=ü`, []rules.Entry{{Key: "k", Value: "ü"}}, ""},
	} {
		got, err := rules.ParseEntries(row.text)
		require.NoError(t, err, row.text)
		assert.Equal(t, row.want, got)
		if row.back == "" {
			row.back = row.text
		}
		assert.Equal(t, row.back, rules.FormatEntries(got))
	}
	for _, text := range []string{"", "=v", ",", "k,", "k=v,,l", `"k`, `"k"x`, `k="v"w`, `k="v"=w`} {
		_, err := rules.ParseEntries(text)
		assert.Error(t, err, text)
	}
	assert.True(t, slices.Equal([]rules.Entry{{Key: "a"}}, entries(t, "a")))
}
