package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/routes"
)

type replayFlags struct {
	cfg                replay.Config // the fields that are flags
	limits, strategies []string
	burst              uint64
	by, format, fields string
	trust              []string
	logFormat          string
	stripPrefix        string
	since, until       string
	paths, methods     []string
	statuses, countIf  []string
	rules              cli.Rules
	compare            string
	suggest            bool
	rulesOut           string
	denyAtMost         string
	overload           goal
	output, html       string
	quiet, follows     bool
}

func (f *replayFlags) config(files []string) (replay.Config, error) {
	cfg := f.cfg
	cfg.Files, cfg.Compare = files, f.compare != ""
	err := f.check(files)
	if err != nil {
		return cfg, err
	}
	cfg.By, err = replay.ParseBy(f.by)
	if err != nil {
		return cfg, err
	}
	cfg.Trust, err = cli.Prefixes("trust", f.trust)
	if err != nil {
		return cfg, err
	}
	cfg.Format, err = f.logLines()
	if err != nil {
		return cfg, err
	}
	cfg.Filter, err = f.filter(time.Now())
	if err != nil {
		return cfg, err
	}
	if f.overload.given {
		cfg.Overload = &replay.Overload{Goal: f.overload.Duration}
		cfg.Overload.RefuseAtMost, err = f.atMost()
		return cfg, err
	}
	if len(f.rules.Paths) > 0 {
		cfg.RuleSets, err = f.ruleSets()
	} else {
		cfg.Rules, err = f.limitRules()
	}
	if err != nil {
		return cfg, err
	}
	if f.suggest {
		cfg.Suggest, err = f.suggestion()
	}
	return cfg, err
}

func (f *replayFlags) logLines() (format accesslog.Format, err error) {
	switch {
	case f.logFormat == "":
		format, err = accesslog.ParseFormat(f.format, f.fields)
	case f.format != "auto" || f.fields != "":
		return format, errors.New("--log-format excludes --format and --map: leave out one of them")
	default:
		format, err = accesslog.ParseLayout(f.logFormat)
	}
	format.Lists = len(f.trust) > 0
	if err == nil && f.stripPrefix != "" {
		format.Prefix, err = regexp.Compile(`^(?:` + f.stripPrefix + `)`)
		if err != nil {
			err = fmt.Errorf("--strip-prefix: %w", err)
		}
	}
	return format, err
}

// selecting are the flags that select and read the requests.
var selecting = []string{"by", "ipv6-prefix", "trust", "format", "map", "log-format",
	"strip-prefix", "since", "until", "path", "method", "status", "count-if", "max-buckets"}

// args returns the words that select and read the same requests again. Times relative to now become
// absolute.
func args(flags *pflag.FlagSet, filter *replay.Filter) (words []string) {
	for _, name := range selecting {
		flag := flags.Lookup(name)
		value := flag.Value.String()
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		if at := map[string]time.Time{"since": filter.Since, "until": filter.Until}[name]; !at.IsZero() {
			value = at.UTC().Format(time.RFC3339Nano)
		}
		if flag.Changed {
			words = append(words, "--"+name, value)
		}
	}
	return words
}

// check returns an error for flags that are wrong by themselves.
func (f *replayFlags) check(files []string) error {
	limited := len(f.limits)+len(f.rules.Paths) > 0
	f.suggest = f.suggest || !limited && !f.overload.given && !f.follows
	switch {
	case len(files) == 0:
		return errors.New(`which log? Name a file, or - for the standard input`)
	case f.overload.given && isGoal(files[0]):
		return fmt.Errorf("--overload takes a goal after an equals sign, as in --overload=%s", files[0])
	case len(slices.DeleteFunc(slices.Clone(files), isFile)) > 1:
		return errors.New("the standard input can be read only once")
	case !slices.Contains(outputs, f.output):
		return fmt.Errorf("--output must be one of %s, not %q", strings.Join(outputs, ", "), f.output)
	case f.cfg.IPv6Bits < 1 || f.cfg.IPv6Bits > 128:
		return fmt.Errorf("--ipv6-prefix must be from 1 to 128, not %d", f.cfg.IPv6Bits)
	case f.cfg.Top < 0:
		return fmt.Errorf("--top must not be negative, but is %d", f.cfg.Top)
	case f.cfg.MaxBuckets <= 0:
		return fmt.Errorf("--max-buckets must be positive, not %d", f.cfg.MaxBuckets)
	}
	if err := f.checkMore(); err != nil {
		return err
	}
	return cmp.Or(checkFile("html", f.html, files), checkFile("rules-out", f.rulesOut, files))
}

func isFile(name string) bool { return name != replay.Stdin }

// checkMore returns an error for flags that need others.
func (f *replayFlags) checkMore() error {
	switch {
	case f.compare != "" && len(f.rules.Paths) == 0 && len(f.limits) != 1:
		return errors.New("--compare needs one --limit, or --rules, to compare with")
	case f.cfg.Replicas.N < 1 || f.cfg.Replicas.N > maxReplicas:
		return fmt.Errorf("--replicas must be from 1 to %d, not %d", maxReplicas, f.cfg.Replicas.N)
	case !(f.cfg.Replicas.Skew >= 0 && f.cfg.Replicas.Skew <= maxSkew):
		return fmt.Errorf("--skew must be from 0 to %d, not %g", maxSkew, f.cfg.Replicas.Skew)
	case f.cfg.Replicas.Skew > 0 && f.cfg.Replicas.N == 1:
		return errors.New("--skew needs --replicas")
	case f.cfg.Replicas.N > 1 && len(f.limits)+len(f.rules.Paths) == 0:
		return errors.New("--replicas needs a --limit or --rules")
	case f.cfg.ByEndpoint && !f.suggest:
		return errors.New("--by-route needs --suggest")
	case f.cfg.ByEndpoint && (f.compare != "" || strings.Contains(f.by, "path")):
		return errors.New("--by-route excludes --compare and --by path: leave out one of them")
	case f.rulesOut != "" && !f.cfg.ByEndpoint:
		return errors.New("--rules-out needs --suggest --by-route")
	case f.rulesOut != "" && f.strategies[0] == rule.Leaky:
		return errors.New("--rules-out: rules have no leaky bucket")
	}
	return nil
}

const (
	maxReplicas = 1000
	maxSkew     = 100
)

// checkFile returns an error if a file that is written would replace one of the logs.
func checkFile(flag, out string, files []string) error {
	page, err := os.Stat(out)
	for _, name := range files {
		log, logErr := os.Stat(name)
		if out != "" && (name == out || err == nil && logErr == nil && os.SameFile(page, log)) {
			return fmt.Errorf("--%s %s is a log that is read: name another file", flag, out)
		}
	}
	return nil
}

// ruleSets returns the rules, and those to compare them with.
func (f *replayFlags) ruleSets() ([]*replay.RuleSet, error) {
	set, err := ruleSet(&f.rules)
	if err != nil || f.compare == "" {
		return []*replay.RuleSet{set}, err
	}
	other := f.rules
	other.Paths = []string{f.compare}
	second, err := ruleSet(&other)
	return []*replay.RuleSet{set, second}, err
}

// limitRules returns the limits. --burst may apply only to --suggest.
func (f *replayFlags) limitRules() ([]rule.Rule, error) {
	rules, err := rule.Cross(f.limits, f.strategies, f.burst)
	isBucket := func(strategy string) bool { return rule.Rule{Strategy: strategy}.HasBurst() }
	if errors.Is(err, rule.ErrBurst) && f.suggest && slices.ContainsFunc(f.strategies, isBucket) {
		rules, err = rule.Cross(f.limits, f.strategies, 0)
	}
	if err != nil || f.compare == "" {
		return rules, err
	}
	second, err := rule.Cross([]string{f.compare}, f.strategies, 0)
	rules = append(rules, second...)
	if err == nil && len(rules) != 2 {
		err = errors.New("--compare needs one strategy for each limit")
	}
	return rules, err
}

func (f *replayFlags) suggestion() (*replay.Suggest, error) {
	fraction, err := f.atMost()
	if err != nil {
		return nil, err
	}
	s := &replay.Suggest{Burst: f.burst, Durations: replay.Durations, DenyAtMost: fraction}
	for _, name := range f.strategies {
		if !slices.Contains(s.Strategies, name) {
			s.Strategies = append(s.Strategies, name)
		}
	}
	return s, nil
}

// atMost returns the fraction of --deny-at-most.
func (f *replayFlags) atMost() (float64, error) {
	fraction, err := parsePercent(f.denyAtMost)
	if err != nil {
		err = fmt.Errorf("--deny-at-most: %w", err)
	}
	return fraction, err
}

// parsePercent parses a percentage and returns it as a fraction from 0 to 1.
func parsePercent(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || !(0 <= percent && percent <= 100) {
		return 0, fmt.Errorf("%q is not a percentage such as 0.1%%", text)
	}
	return percent / 100, nil
}

func (f *replayFlags) filter(now time.Time) (replay.Filter, error) {
	var out replay.Filter
	var err error
	out.Since, err = parseTime("since", f.since, now)
	if err != nil {
		return out, err
	}
	out.Until, err = parseTime("until", f.until, now)
	if err != nil {
		return out, err
	}
	if !out.Since.IsZero() && !out.Until.IsZero() && !out.Since.Before(out.Until) {
		return out, fmt.Errorf("--until %s is not after --since %s", f.until, f.since)
	}
	out.Routes, err = f.selected()
	if err != nil {
		return out, err
	}
	out.Statuses, err = parseStatuses("status", f.statuses)
	if err != nil {
		return out, err
	}
	out.CountIf, err = parseStatuses("count-if", f.countIf)
	return out, err
}

// selected returns the methods and paths for the flags. A path includes what is below it.
func (f *replayFlags) selected() (*replay.Routes, error) {
	var patterns []string
	methods, paths := f.methods, f.paths
	if len(methods)+len(paths) == 0 {
		return nil, nil
	}
	if len(methods) == 0 {
		methods = []string{""}
	}
	if len(paths) == 0 {
		paths = []string{"/"}
	}
	for _, method := range methods {
		for _, path := range paths {
			if !strings.HasPrefix(path, "/") {
				return nil, fmt.Errorf("--path %q does not begin with a slash", path)
			}
			pattern := strings.ToUpper(method) + " " + strings.TrimRight(path, "/") + "/"
			patterns = append(patterns, strings.TrimSpace(pattern))
		}
	}
	match, err := routes.Matcher(patterns)
	return &replay.Routes{Patterns: patterns, Match: match}, err
}

func parseStatuses(flag string, texts []string) (*replay.Statuses, error) {
	match, err := cli.Statuses(texts)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--%s: %w", flag, err)
	case match == nil:
		return nil, nil
	}
	return &replay.Statuses{Text: strings.Join(texts, ","), Match: match}, nil
}

// timeLayouts are the accepted forms of a time. Those without a zone are UTC.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
	"2006-01-02 15:04", "2006-01-02"}

// parseTime parses a time, or a duration that it subtracts from now. For an empty text it returns
// the zero time.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	if d, err := rule.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("--%s %q: want a time such as 2006-01-02T15:04:05Z, "+
		"2006-01-02 15:04 or 2006-01-02, or 24h for 24 hours ago", flag, text)
}
