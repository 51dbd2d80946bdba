package httplimit

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
)

// logSecret makes the digests in the log useless to whoever would try all addresses until one fits.
var logSecret = rand.Text()

// logFailure logs that a Strategy, or the penalty box, failed for this caller.
func (m *middleware) logFailure(ctx context.Context, policy, key string, err error) {
	logger := m.Logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(ctx, slog.LevelError, "httplimit: the limiter failed",
		slog.String("policy", policy),
		slog.String("key", m.logKey(key)),
		// An error may quote what a client sent, and not every slog.Handler escapes what it writes.
		slog.String("error", escape(err.Error())))
}

// logKey returns the key as it may stand in a log.
func (m *middleware) logKey(key string) string {
	if m.LogKeys {
		return strconv.QuoteToASCII(key)
	}
	mac := hmac.New(sha256.New, []byte(logSecret))
	mac.Write([]byte(key))
	return "hmac:" + hex.EncodeToString(mac.Sum(nil)[:8])
}

// escape escapes what could forge a line of a log or act on a terminal, and leaves plain text plain.
func escape(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}
