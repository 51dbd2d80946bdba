// Package rulestest runs tests of rules: requests and the decisions that they should get.
package rulestest

import (
	"cmp"
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

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
)

// Test is a request and the expected decision. The request is given in one of five ways.
type Test struct {
	Name        string         `yaml:"name"`
	Line        int            `yaml:"-"` // in its file
	Domain      string         `yaml:"domain"`
	Descriptor  string         `yaml:"descriptor"`
	Descriptors []string       `yaml:"descriptors"`
	Request     map[string]any `yaml:"request"`
	HTTP        *HTTP          `yaml:"http"`
	LogLine     string         `yaml:"line"`
	Hits        *uint64        `yaml:"hits"`
	After       int            `yaml:"after"`
	Rule        string         `yaml:"rule"`
	Rules       []string       `yaml:"rules"`   // of each descriptor; nil means not compared
	Verdict     string         `yaml:"verdict"` // OK or OVER_LIMIT; "" means not compared

	request *rules.Request
	http    *http.Request // described by the rules of request.Domain, unless nil
}

// None stands for the rule of a descriptor without a limit.
const None = "none"

// maxAfter bounds the number of requests that a test makes before the one it checks.
const maxAfter = 1_000_000

// ReadFile reads a file of tests and reports every invalid test.
func ReadFile(name string) ([]Test, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	type file struct {
		Domain string      `yaml:"domain"`
		Tests  []yaml.Node `yaml:"tests"`
	}
	var f file
	if err := yaml.Load(data, &f, yaml.WithKnownFields()); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	tests := make([]Test, len(f.Tests))
	var errs []error
	for i := range f.Tests {
		if err := tests[i].read(&f.Tests[i], f.Domain); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: test %d: %w", name, f.Tests[i].Line, i+1, err))
		}
	}
	return tests, errors.Join(errs...)
}

// read reads a test. domain is that of its file.
func (t *Test) read(n *yaml.Node, domain string) error {
	if err := n.Load(t, yaml.WithKnownFields()); err != nil {
		return err
	}
	t.Name, t.Line, t.request = cmp.Or(t.Name, "test"), n.Line, new(rules.Request)
	if err := t.readRequest(); err != nil {
		return err
	}
	t.request.Domain = cmp.Or(t.request.Domain, t.Domain, domain)
	if t.Rule != "" {
		t.Rules = append(t.Rules, t.Rule)
	}
	given := t.Verdict
	t.Verdict = strings.ToUpper(given)
	switch {
	case t.request.Domain == "":
		return errors.New("neither the test nor the file has a domain")
	case t.After < 0 || t.After > maxAfter:
		return fmt.Errorf("after must be from 0 to %d, not %d", maxAfter, t.After)
	case t.http == nil && len(t.Rules) > 0 && len(t.Rules) != len(t.request.Descriptors):
		return fmt.Errorf("%d rules for %d descriptors", len(t.Rules), len(t.request.Descriptors))
	case t.Verdict != "" && t.Verdict != "OK" && t.Verdict != "OVER_LIMIT":
		return fmt.Errorf("the verdict must be OK or OVER_LIMIT, not %q", given)
	case len(t.Rules) == 0 && t.Verdict == "":
		return errors.New("nothing to check: give a rule or a verdict")
	}
	return nil
}

// readRequest sets the request, or the HTTP request that the rules describe.
func (t *Test) readRequest() (err error) {
	ways := 0
	for _, given := range []bool{t.Descriptor != "", len(t.Descriptors) > 0, t.Request != nil,
		t.HTTP != nil, t.LogLine != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errors.New("want exactly one of descriptor, descriptors, request, http and line")
	case t.Hits != nil && t.Request != nil:
		return errors.New("give the hits of a request inside it, as hitsAddend")
	case t.Hits != nil && (t.HTTP != nil || t.LogLine != ""):
		return errors.New("the rate_limits say how many hits an HTTP request is")
	case t.HTTP != nil:
		t.http, err = t.HTTP.Request()
		return err
	case t.LogLine != "":
		t.http, err = Line(t.LogLine, accesslog.Format{})
		return err
	case t.Request != nil:
		data, err := json.Marshal(t.Request)
		if err == nil {
			t.request, err = ParseRequest(data)
		}
		return err
	}
	if t.Descriptor != "" {
		t.Descriptors = []string{t.Descriptor}
	}
	t.request.Descriptors, err = ParseDescriptors(t.Descriptors)
	if t.Hits != nil {
		for i := range t.request.Descriptors {
			d := &t.request.Descriptors[i]
			d.Hits, d.HasHits = *t.Hits, true
		}
	}
	return err
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
			return nil, fmt.Errorf("domain %q has no rate_limits, which say how a request becomes "+
				"descriptors", t.request.Domain)
		}
		t.request = set.RequestOf(t.request.Domain, t.http, httplimit.RemoteAddr())
	}
	var resp rules.Response
	for range t.After + 1 {
		if len(t.request.Descriptors) == 0 {
			break // the request is not limited
		}
		if _, err := engine.Hold(ctx, t.request, &resp); err != nil { // those before are still in flight
			return nil, err
		}
	}
	failures = t.compare(set, &resp)
	if got := resp.Code(); t.Verdict != "" && got != t.Verdict {
		failures = append(failures, fmt.Sprintf("the verdict is %s, not %s\n%s",
			got, t.Verdict, indent(resp.String())))
	}
	return failures, nil
}

// compare returns the differences of the rules from the expected ones. For the one rule expected of
// an HTTP request, which may have several descriptors, one of them must have it, or all none.
func (t *Test) compare(set *rules.Set, resp *rules.Response) (failures []string) {
	want := t.Rules
	if t.http != nil && len(want) == 1 {
		is := func(s rules.Status) bool { return isRule(&s, want[0]) }
		others := func(s rules.Status) bool { return !isRule(&s, None) }
		if want[0] == None && !slices.ContainsFunc(resp.Statuses, others) ||
			want[0] != None && slices.ContainsFunc(resp.Statuses, is) {
			return nil
		}
		want = slices.Repeat(want, len(resp.Statuses))
	}
	if t.http != nil && len(t.Rules) > 0 && (len(want) != len(resp.Statuses) || len(want) == 0) {
		return []string{fmt.Sprintf("the request has %d descriptors, and the test %d rules",
			len(resp.Statuses), len(t.Rules))}
	}
	for i, want := range want {
		s := &resp.Statuses[i]
		if got := ruleOf(s); !isRule(s, want) {
			walk := set.Explain(t.request.Domain, t.request.Descriptors[i].Entries)
			failures = append(failures, fmt.Sprintf("the rule of descriptor %d is %s, not %s\n%s", i, got,
				want, indent(walk)))
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
	return want == ruleOf(s) || s.Rule != nil && want == s.Rule.Limit.Name
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}
