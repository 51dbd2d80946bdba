// Package rulestest runs tests of rules: requests and the decisions that they should get.
package rulestest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/cmd/weir/internal/serve"
	"github.com/weirgo/weir/rules"
)

// Test is a request and the expected decision.
type Test struct {
	Name string
	Line int // in its file

	request *rules.Request
	after   int
	rules   []string // expected rule of each descriptor; nil means not compared
	verdict string   // OK or OVER_LIMIT; "" means not compared
}

// None stands for the rule of a descriptor without a limit.
const None = "none"

// maxAfter bounds the number of requests that a test makes before the one it checks.
const maxAfter = 1_000_000

type file struct {
	Domain string      `yaml:"domain"`
	Tests  []yaml.Node `yaml:"tests"`
}

type entry struct {
	Name        string         `yaml:"name"`
	Domain      string         `yaml:"domain"`
	Descriptor  string         `yaml:"descriptor"`
	Descriptors []string       `yaml:"descriptors"`
	Request     map[string]any `yaml:"request"`
	Hits        *uint64        `yaml:"hits"`
	After       int            `yaml:"after"`
	Rule        string         `yaml:"rule"`
	Rules       []string       `yaml:"rules"`
	Verdict     string         `yaml:"verdict"`
}

// ReadFile reads a file of tests.
func ReadFile(name string) ([]Test, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	tests, err := Read(name, data)
	if err != nil {
		return nil, err
	}
	return tests, nil
}

// Read parses a file of tests and reports every invalid test.
func Read(name string, data []byte) ([]Test, error) {
	var f file
	if err := yaml.Load(data, &f, yaml.WithKnownFields()); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var tests []Test
	var errs []error
	for i := range f.Tests {
		n := &f.Tests[i]
		t, err := read(n, f.Domain)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: test %d: %w", name, n.Line, i+1, err))
		}
		tests = append(tests, t)
	}
	return tests, errors.Join(errs...)
}

func read(n *yaml.Node, domain string) (Test, error) {
	var e entry
	if err := n.Load(&e, yaml.WithKnownFields()); err != nil {
		return Test{}, err
	}
	t := Test{Name: e.Name, Line: n.Line, after: e.After, rules: e.Rules, verdict: strings.ToUpper(e.Verdict)}
	if e.Domain == "" {
		e.Domain = domain
	}
	var err error
	if t.request, err = e.request(); err != nil {
		return t, err
	}
	if t.request.Domain == "" {
		t.request.Domain = e.Domain
	}
	if e.Rule != "" {
		t.rules = append(t.rules, e.Rule)
	}
	if t.Name == "" {
		t.Name = "test"
	}
	switch {
	case t.request.Domain == "":
		err = errors.New("neither the test nor the file has a domain")
	case e.After < 0 || e.After > maxAfter:
		err = fmt.Errorf("after must be from 0 to %d, not %d", maxAfter, e.After)
	case len(t.rules) > 0 && len(t.rules) != len(t.request.Descriptors):
		err = fmt.Errorf("%d rules for %d descriptors", len(t.rules), len(t.request.Descriptors))
	case t.verdict != "" && t.verdict != rules.OK.String() && t.verdict != rules.OverLimit.String():
		err = fmt.Errorf("the verdict must be OK or OVER_LIMIT, not %q", e.Verdict)
	case len(t.rules) == 0 && t.verdict == "":
		err = errors.New("nothing to check: give a rule or a verdict")
	}
	return t, err
}

// request returns the request of e, which is given in one of three ways.
func (e *entry) request() (*rules.Request, error) {
	ways := 0
	for _, given := range []bool{e.Descriptor != "", len(e.Descriptors) > 0, e.Request != nil} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, errors.New("want exactly one of descriptor, descriptors and request")
	}
	if e.Request != nil {
		if e.Hits != nil {
			return nil, errors.New("give the hits of a request inside it, as hitsAddend")
		}
		data, err := json.Marshal(e.Request)
		if err != nil {
			return nil, err
		}
		return serve.ParseRequest(data)
	}
	req := &rules.Request{Domain: e.Domain}
	if e.Descriptor != "" {
		e.Descriptors = []string{e.Descriptor}
	}
	for _, text := range e.Descriptors {
		entries, err := rules.ParseEntries(text)
		if err != nil {
			return nil, err
		}
		d := rules.Descriptor{Entries: entries}
		if e.Hits != nil {
			d.Hits, d.HasHits = *e.Hits, true
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req, nil
}

// Run decides on the request by set and returns the differences from the expectation. It fails if
// the request cannot be decided.
func (t *Test) Run(ctx context.Context, set *rules.Set) (failures []string, err error) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	engine, err := rules.New(set, rules.Config{Now: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	var resp rules.Response
	for range t.after + 1 {
		if err := engine.DecideInto(ctx, t.request, &resp); err != nil {
			return nil, err
		}
	}
	for i, want := range t.rules {
		s := &resp.Statuses[i]
		if got := ruleOf(s); !isRule(s, want) {
			walk := set.Explain(t.request.Domain, t.request.Descriptors[i].Entries).String()
			failures = append(failures, fmt.Sprintf("the rule of descriptor %d is %s, not %s\n%s",
				i, got, want, strings.TrimRight(indent(walk), "\n")))
		}
	}
	if got := resp.Code.String(); t.verdict != "" && got != t.verdict {
		failures = append(failures, fmt.Sprintf("the verdict is %s, not %s\n%s",
			got, t.verdict, strings.TrimRight(indent(resp.String()), "\n")))
	}
	return failures, nil
}

func ruleOf(s *rules.Status) string {
	if s.Rule == nil {
		return None
	}
	return s.Rule.Path
}

func isRule(s *rules.Status, want string) bool {
	if s.Rule == nil {
		return want == None
	}
	return want == s.Rule.Path || want == s.Rule.Limit.Name
}

func indent(text string) string {
	var b bytes.Buffer
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}
