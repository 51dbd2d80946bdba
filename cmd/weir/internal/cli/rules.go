package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/rules"
)

// Rules name the rules that limit HTTP requests, as flags do.
type Rules struct {
	Paths  []string // files and directories; empty: no rules
	Domain string   // empty: the only one that has rate_limits
	Loader rules.Loader
}

// Add adds the flags.
func (f *Rules) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.Paths, "rules", nil, "a `file` or directory of rules (repeatable)")
	flags.StringVar(&f.Domain, "domain", "", "the `domain` of the rules, if they have several")
	AddLoader(cmd, &f.Loader)
}

// Exclude returns an error if one of the flags others is given together with a flag.
func Exclude(flag string, given func(string) bool, others []string) error {
	if !given(flag) {
		return nil
	}
	for _, name := range others {
		if given(name) {
			return Excluded(name, flag)
		}
	}
	return nil
}

// Choose returns the requested domain or, if none is requested, the only one that has rate_limits.
func (f *Rules) Choose(set *rules.Set) (string, error) {
	name := f.Domain
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
		return "", errors.New("the rules have no rate_limits, which say how a request becomes " +
			"descriptors")
	case len(domains) > 1:
		return "", fmt.Errorf("the rules have several domains, %s: choose one by --domain",
			strings.Join(domains, ", "))
	}
	return domains[0], nil
}

// AddLoader adds the flags of a Loader.
func AddLoader(cmd *cobra.Command, to *rules.Loader) {
	cmd.Flags().Var((*algorithm)(&to.Algorithm), "algorithm",
		"how rules count that name no `algorithm`, in files that name none: fixed_window, "+
			"sliding_window, sliding_log or token_bucket")
	cmd.Flags().BoolVar(&to.MergeDomains, "merge-domains", false,
		"allow a domain to be in several files or documents")
}

// algorithm is a flag with the name of a rules.Algorithm.
type algorithm rules.Algorithm

func (a *algorithm) String() string { return rules.Algorithm(*a).String() }
func (a *algorithm) Type() string   { return "algorithm" }

func (a *algorithm) Set(name string) error {
	for of := rules.FixedWindow; of < rules.InFlight; of++ {
		if of.String() == name {
			*a = algorithm(of)
			return nil
		}
	}
	return errors.New("want fixed_window, sliding_window, sliding_log or token_bucket")
}

// RefuseInFlight returns an error for each rule that limits requests in flight, in one domain or,
// if that is empty, in all. why says what is missing here.
func RefuseInFlight(set *rules.Set, domain, why string) error {
	var errs []error
	for r := range set.All() {
		if r.Limit.Algorithm == rules.InFlight && (domain == "" || r.Domain == domain) {
			errs = append(errs, fmt.Errorf("%s:%d:%d: %s: %s", r.File, r.Line, r.Column, r.Path, why))
		}
	}
	return errors.Join(errs...)
}
