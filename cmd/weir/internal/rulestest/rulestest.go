// Package rulestest runs tests of rules: requests and the decisions that they should get.
package rulestest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
)

// Test is a request and the expected decision.
type Test struct {
	Name string
	Line int // in its file

	request *rules.Request
	http    *http.Request // described by the rules of request.Domain, unless nil
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
	HTTP        *HTTP          `yaml:"http"`
	Line        string         `yaml:"line"`
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
	t := Test{Name: e.Name, Line: n.Line, after: e.After, rules: e.Rules,
		verdict: strings.ToUpper(e.Verdict)}
	if e.Domain == "" {
		e.Domain = domain
	}
	var err error
	if t.request, t.http, err = e.request(); err != nil {
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
	case t.http == nil && len(t.rules) > 0 && len(t.rules) != len(t.request.Descriptors):
		err = fmt.Errorf("%d rules for %d descriptors", len(t.rules), len(t.request.Descriptors))
	case t.verdict != "" && t.verdict != rules.OK.String() && t.verdict != rules.OverLimit.String():
		err = fmt.Errorf("the verdict must be OK or OVER_LIMIT, not %q", e.Verdict)
	case len(t.rules) == 0 && t.verdict == "":
		err = errors.New("nothing to check: give a rule or a verdict")
	}
	return t, err
}

// request returns the request of e, which is given in one of five ways: its descriptors, or the
// HTTP request that the rules describe.
func (e *entry) request() (*rules.Request, *http.Request, error) {
	ways := 0
	for _, given := range []bool{e.Descriptor != "", len(e.Descriptors) > 0, e.Request != nil,
		e.HTTP != nil,
		e.Line != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return nil, nil, errors.New("want exactly one of descriptor, descriptors, request, http and line")
	case e.Hits != nil && e.Request != nil:
		return nil, nil, errors.New("give the hits of a request inside it, as hitsAddend")
	case e.Hits != nil && (e.HTTP != nil || e.Line != ""):
		return nil, nil, errors.New("the rate_limits say how many hits an HTTP request is")
	}
	req := &rules.Request{Domain: e.Domain}
	var in *http.Request
	var err error
	switch {
	case e.HTTP != nil:
		in, err = e.HTTP.Request()
	case e.Line != "":
		in, err = Line(e.Line, accesslog.Format{})
	case e.Request != nil:
		var data []byte
		if data, err = json.Marshal(e.Request); err == nil {
			req, err = ParseRequest(data)
		}
	default:
		err = e.describe(req)
	}
	return req, in, err
}

// describe adds the descriptors of e to req.
func (e *entry) describe(req *rules.Request) error {
	if e.Descriptor != "" {
		e.Descriptors = []string{e.Descriptor}
	}
	for _, text := range e.Descriptors {
		entries, err := rules.ParseEntries(text)
		if err != nil {
			return err
		}
		d := rules.Descriptor{Entries: entries}
		if e.Hits != nil {
			d.Hits, d.HasHits = *e.Hits, true
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return nil
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
	if t.http != nil {
		if len(set.Describers(t.request.Domain)) == 0 {
			return nil,
				fmt.Errorf("domain %q has no rate_limits, which say how a request becomes descriptors",
					t.request.Domain)
		}
		t.request = set.RequestOf(t.request.Domain, t.http, httplimit.RemoteAddr())
	}
	resp := rules.Response{Code: rules.OK}
	for range t.after + 1 {
		if len(t.request.Descriptors) == 0 {
			break // the request is not limited
		}
		if _, err := engine.Hold(ctx, t.request, &resp); err != nil { // those before are still in flight
			return nil, err
		}
	}
	failures = t.compare(set, &resp)
	if got := resp.Code.String(); t.verdict != "" && got != t.verdict {
		failures = append(failures, fmt.Sprintf("the verdict is %s, not %s\n%s",
			got, t.verdict, strings.TrimRight(indent(resp.String()), "\n")))
	}
	return failures, nil
}

// compare returns the differences of the rules from the expected ones. For the one rule expected of
// an HTTP request, which may have several descriptors, one of them must have it, or all none.
func (t *Test) compare(set *rules.Set, resp *rules.Response) (failures []string) {
	want := t.rules
	if t.http != nil && len(want) == 1 {
		is := func(s rules.Status) bool { return isRule(&s, want[0]) }
		others := func(s rules.Status) bool { return !isRule(&s, None) }
		if want[0] == None && !slices.ContainsFunc(resp.Statuses, others) ||
			want[0] != None && slices.ContainsFunc(resp.Statuses, is) {
			return nil
		}
		want = slices.Repeat(want, len(resp.Statuses))
	}
	if t.http != nil && len(t.rules) > 0 && (len(want) != len(resp.Statuses) || len(want) == 0) {
		return []string{fmt.Sprintf("the request has %d descriptors, and the test %d rules",
			len(resp.Statuses),
			len(t.rules))}
	}
	for i, want := range want {
		s := &resp.Statuses[i]
		if got := ruleOf(s); !isRule(s, want) {
			walk := set.Explain(t.request.Domain, t.request.Descriptors[i].Entries).String()
			failures = append(failures, fmt.Sprintf("the rule of descriptor %d is %s, not %s\n%s",
				i, got, want, strings.TrimRight(indent(walk), "\n")))
		}
	}
	return failures
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
