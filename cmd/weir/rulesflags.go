package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/live"
	"github.com/weirgo/weir/cmd/weir/internal/replay"
	"github.com/weirgo/weir/rules"
)

// rulesFlags name the rules that limit HTTP requests.
type rulesFlags struct {
	paths  []string
	domain string
	loader rules.Loader
}

// add adds the flags.
func (f *rulesFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.paths, "rules", nil, "a `file` or directory of rules (repeatable)")
	flags.StringVar(&f.domain, "domain", "", "the `domain` of the rules, if they have several")
	mergeFlag(cmd, &f.loader)
}

// exclude returns an error if --rules is given together with one of the flags others.
func (f *rulesFlags) exclude(given func(string) bool, others []string) error {
	for _, name := range others {
		if len(f.paths) > 0 && given(name) {
			return fmt.Errorf("--%s and --rules exclude each other: leave out one of them", name)
		}
	}
	return nil
}

// replayed loads the rules for a replay.
func (f *rulesFlags) replayed() (*replay.RuleSet, error) {
	set, err := f.loader.LoadFiles(f.paths...)
	if err != nil {
		return nil, err
	}
	domain, err := f.choose(set)
	if err == nil {
		err = live.RefuseInFlight(set, domain,
			"the unit in_flight cannot be replayed, since a log does not say which "+
				"requests were in flight; replay a copy of the file without the rule")
	}
	if err != nil {
		return nil, err
	}
	var words []string
	for _, path := range f.paths {
		words = append(words, "--rules", path)
	}
	if f.loader.MergeDomains {
		words = append(words, "--merge-domains")
	}
	return &replay.RuleSet{Set: set, Name: strings.Join(f.paths, ", "), Domain: domain, Flags: words},
		nil
}

// choose returns the requested domain or, if none is requested, the only one that has rate_limits.
func (f *rulesFlags) choose(set *rules.Set) (string, error) {
	name := f.domain
	domains := slices.DeleteFunc(set.Domains(), func(d string) bool {
		return set.Describers(d) == nil
	})
	switch {
	case name != "" && !set.Has(name):
		return "", fmt.Errorf("the rules have no domain %q; they have %s", name,
			strings.Join(set.Domains(), ", "))
	case name != "" && !slices.Contains(domains, name):
		return "",
			fmt.Errorf("domain %q has no rate_limits, which say how a request becomes descriptors", name)
	case name != "":
		return name, nil
	case len(domains) == 0:
		return "",
			errors.New("the rules have no rate_limits, which say how a request becomes descriptors")
	case len(domains) > 1:
		return "", fmt.Errorf("the rules have several domains, %s: choose one by --domain",
			strings.Join(domains, ", "))
	}
	return domains[0], nil
}
