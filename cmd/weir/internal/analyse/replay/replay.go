// Package replay runs the requests of access logs through weir's limiters, with the times of the
// log as the clock, and counts the requests that the limits would have denied.
//
// It reads the log once, on all cores: it parses blocks of lines into records, numbers the callers
// and stores each request in one of several spools, chosen by its caller. Then each spool returns
// its requests in order of time, and they are decided on. Memory grows with the number of requests,
// by 16 bytes each, and with that of callers. A Load takes twice that, and more for what is in
// flight at the same time.
package replay

import (
	"io"
	"net/netip"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
)

// Config describes a replay.
type Config struct {
	Files      []string  // Stdin names the standard input
	Stdin      io.Reader // read if a file is Stdin
	Format     accesslog.Format
	Rules      []rule.Rule
	RuleSets   []*RuleSet // replayed instead of Rules; may be nil
	Compare    bool       // there are two Rules or two RuleSets, A and B
	Replicas   Replicas   // also replay what so many instances would have admitted
	By         By
	IPv6Bits   int            // bits of an IPv6 address in its key; 0 means httplimit's default
	Trust      []netip.Prefix // the proxies whose X-Forwarded-For is read, as for httplimit.ClientIP
	Filter     Filter
	MaxBuckets int      // of each rule's limiter
	Top        int      // callers in RuleResult.Worst
	Args       []string // the words of a command line that select and read the same requests
	Suggest    *Suggest // nil means no suggestions
	ByEndpoint bool     // suggest for each endpoint
	Force      bool     // make suggestions although there are doubts
	Routes     bool     // fill in RuleResult.Routes and Caller.Detail, not for a Follower

	// Overload is what Result.Load is to find; nil means none. Without it nothing needs durations,
	// and with it there are no rules, no Suggest and no Routes.
	Overload *Overload

	// Progress is called from time to time, never concurrently. It may be nil.
	Progress func(Progress)

	// Stop, when it is closed, ends the reading: the Result is of what was read by then, and the file
	// that was cut, and those that were not read, are in Result.Failed with ErrInterrupted. It may be
	// nil.
	Stop <-chan struct{}

	parts  int // goroutines that decide; 0 means one per core
	maxRun int // of a spool; 0 means maxRun
}

// Rules decide on descriptors, which several callers may share, and some reports are by endpoint
// too. Such a replay numbers distinct descriptions instead of callers while it reads a log.
// A description is a text: the caller of a request, its endpoint, and the descriptors that
// each set of rules makes of it. Memory grows with the number of descriptions.

func (cfg *Config) describes() bool { return cfg.RuleSets != nil || cfg.ByEndpoint }

// namesRoutes reports whether anything is counted by route.
func (cfg *Config) namesRoutes() bool { return cfg.Routes || cfg.Compare }

// Progress is the progress of a replay.
type Progress struct {
	Bytes, Lines      uint64 // read
	Decided, Requests uint64 // Requests is 0 until all files are read
}

const maxParts = 8
