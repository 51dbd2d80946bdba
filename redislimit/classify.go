package redislimit

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir"
)

// Class is the cause of an error, and so how to handle it.
type Class int

// The classes.
const (
	// None: no error.
	None Class = iota

	// Down: the server cannot be reached, did not answer in time, or cannot write now (LOADING,
	// READONLY, OOM, …). It may pass by itself: decide otherwise meanwhile, and count it against
	// the server.
	Down

	// Misconfigured: the server refuses this client (NOAUTH, WRONGPASS, NOPERM), or the client is
	// closed, or the clocks differ (ErrClock), or no Sentinel has a master of the client's MasterName.
	// Decide otherwise, and raise an alert: this does not pass by itself.
	Misconfigured

	// Bug: the server answered, and not as it should: a key of another type, a reply of another
	// form, a script error. Decide otherwise, and raise an alert; the server is not down.
	Bug

	// Caller: the caller's context ended, or the Request is bad. It says nothing about the server.
	Caller
)

// String returns the class in lower case.
func (c Class) String() string {
	return [...]string{"none", "down", "misconfigured", "bug", "caller"}[c]
}

// The errors of a decision, beside the client's and weir's.
var (
	// ErrTimeout: Config.Timeout passed. The request may or may not have been counted.
	ErrTimeout = errors.New("redislimit: timeout")

	// ErrReply: the server's answer is not one that the script gives.
	ErrReply = errors.New("redislimit: strange reply")

	// ErrClock: of a Calendar: the server's clock shows an instant that is in none of the windows
	// around the time of this process. Nothing was counted.
	ErrClock = errors.New(
		"redislimit: the clocks of this process and of the server differ by more than a window",
	)
)

// downPrefixes begin the messages of a server that is there and cannot serve.
var downPrefixes = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "OOM", "BUSY",
	"MISCONF", "MOVED", "ASK", "max number of clients",
}

// refusals begin the messages of a server that does not want this client.
var refusals = []string{"NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "invalid password",
	"invalid username-password pair", "The user executing the script"}

// Classify returns the class of an error from this package or from the client. If it is
// neither the caller's doing nor a message of the server, the server cannot be reached.
func Classify(err error) Class {
	var message redis.Error
	switch {
	case err == nil:
		return None
	case errors.Is(err, ErrTimeout):
		return Down
	case unknownMaster(err):
		return Misconfigured
	case errors.Is(err, ErrReply), errors.Is(err, redis.Nil):
		return Bug
	case errors.Is(err, weir.ErrID), errors.Is(err, weir.ErrScale), errors.Is(err, weir.ErrLimit),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Caller
	case errors.Is(err, redis.ErrClosed), errors.Is(err, ErrClock):
		return Misconfigured
	case errors.As(err, &message):
		return classifyMessage(message.Error())
	}
	return Down
}

// unknownMaster reports whether err is of Sentinels, none of which has the master: a nil is all
// that they answer then.
func unknownMaster(err error) bool {
	return errors.Is(err, redis.Nil) && strings.Contains(err.Error(), "all sentinels ")
}

func classifyMessage(m string) Class {
	m = strings.TrimPrefix(m, "ERR ")
	// Before Redis 7, an error in a script comes wrapped: "Error running script …: @user_script:12:
	// -OOM command …".
	if _, inner, ok := strings.Cut(m, "@user_script"); ok && strings.HasPrefix(m, "Error ") {
		if _, code, ok := strings.Cut(inner, " -"); ok {
			m = code
		}
	}
	switch {
	case hasPrefix(m, downPrefixes):
		return Down
	case hasPrefix(m, refusals):
		return Misconfigured
	}
	return Bug
}

func hasPrefix(m string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(m, p) })
}
