package httplimit

import (
	"context"
	"net/http"
)

// Ticket is one request from [Guard.Begin] to its end. A goroutine that has one
//
//   - either has the request handled, if Passes reports true, with the results of Writer or after
//     SetFields, or else calls Answer;
//   - calls End once that is over, and defers Abort, which ends the request after a panic.
//
// A Ticket is over after End or Abort, whichever comes first: then, as for the zero Ticket, Passes
// reports false, Decision returns the zero Decision, and the other methods do nothing. A Ticket may
// be copied, and all copies are over at once. It must be used by one goroutine at a time, but any
// number of them may call End and Abort.
type Ticket struct {
	c       *call
	request *http.Request
	use     uint64 // of c
}

// call returns the state of the request, or nil if the Ticket is over.
func (t Ticket) call() *call {
	if t.c == nil || t.c.uses.Load() != t.use {
		return nil
	}
	return t.c
}

// Passes reports whether the request is to be handled. It is in shadow mode, whatever the Kind.
func (t Ticket) Passes() bool {
	c := t.call()
	return c != nil && c.passes()
}

// Decision returns the decision.
func (t Ticket) Decision() Decision {
	if c := t.call(); c != nil {
		return c.report()
	}
	return Decision{}
}

// Context returns the request's context, by which [IsBypassed] knows a request that no Strategy has
// decided on. It is the Background of package context once the Ticket is over.
func (t Ticket) Context() context.Context {
	switch c := t.call(); {
	case c == nil:
		return context.Background()
	case c.kind == Bypassed:
		return bypassed(t.request.Context())
	}
	return t.request.Context()
}

// SetFields adds the fields that report the limits, as Config.Headers says, and to a refusal
// Retry-After. In shadow mode it adds none.
func (t Ticket) SetFields(h http.Header) {
	if c := t.call(); c != nil {
		f := fields{header: h, values: make([]string, len(styleFields[c.guard.cfg.Headers])+1)}
		c.setFields(&f)
		c.setRetryAfter(&f)
	}
}

// Answer answers a request that does not pass, with its fields. It writes nothing if the request
// passes, so that the answer of a handler stands.
func (t Ticket) Answer(w http.ResponseWriter) {
	if c := t.call(); c != nil && !c.passes() {
		c.write(w, t.request)
	}
}

// Writer returns a writer and a request for the handler of a request that passes, in place of w and
// of the request that was begun. The writer has the fields, leaves them out of informational
// answers (1xx), and knows the answer, for CountIf, and whether the connection is handed over, for
// the bounds on requests in flight. It has those optional interfaces of net/http that w has, and
// may be w.
func (t Ticket) Writer(w http.ResponseWriter) (http.ResponseWriter, *http.Request) {
	if c := t.call(); c != nil && c.passes() {
		return c.writer(w, t.request)
	}
	return w, t.request
}

// Stream says that the request is a stream, which may last for as long as it likes: its place of
// Overload is given back, and is not measured. Stream is for adapters whose handlers do not write
// to the Writer, by which a Guard finds that out. It does nothing to a request that does not pass.
func (t Ticket) Stream() {
	if c := t.call(); c != nil && c.inFlight != nil {
		c.inFlight.place.drop()
	}
}

// End ends the request: it gives the request back if CountIf says so of the status that was
// answered with, and releases the places of a request in flight, but for the place of a connection
// which was handed over by a Writer, whose place is released when it is closed. To Overload the
// handler has taken until now, if the client is still there and the status is below 500.
//
// A status that was written to a Writer counts in place of status. 0 stands for that one, or for
// the 200 that net/http sends for a handler that has written none; without a Writer it is not
// known, and the request counts.
func (t Ticket) End(status int) {
	if c := t.call(); c != nil && c.uses.CompareAndSwap(t.use, t.use+1) {
		c.end(t.request, status)
	}
}

// Abort ends a request whose handler has panicked: it counts, and its places are released. Overload
// does not measure it unless the client has left.
func (t Ticket) Abort() {
	if c := t.call(); c != nil && c.uses.CompareAndSwap(t.use, t.use+1) && c.inFlight != nil {
		c.inFlight.end(false, 0)
	}
}
