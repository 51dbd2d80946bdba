package verify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

// Negative controls of claims about one goroutine or of exact figures: with one line of the code
// wrong, the test that proves the claim must fail.
var claimFaults = []struct {
	dir, test string
	edits     []edit
}{
	{"proofs/verify", "TestAtMostTwiceTheLimitInAnySpan",
		[]edit{{"checkrate.go", "if total > limit-cost {", "if total > limit {"}}},
	{"proofs/verify", "TestMostInAnySpan",
		[]edit{{"internal/core/algorithm/counter.go", "case next.N > p.Limit-p.Cost:", "case next.N > p.Limit:"}}},
	{".", "TestEqualLimitsMadeAtOnceCountTogether",
		[]edit{{"internal/core/windows/series.go", "\tdefer g.mu.Unlock()\n\tif s, ok := g.known.Load(name); ok {\n" +
			"\t\treturn s.(*Series), nil\n\t}\n", "\tdefer g.mu.Unlock()\n"}}},
	{".", "TestLimitsAreBounded",
		[]edit{{"internal/core/windows/series.go", "if len(all) > MaxSeries {", "if false {"}}},
	{".", "TestLimitsCountTogetherIfAndOnlyIfTheyAreEqual",
		[]edit{{"limit.go", "numbers := strconv.FormatUint(m.n, 10)",
			"numbers := strconv.FormatUint(m.n&0, 10)"}}},
	{"proofs/verify", "TestExactAcrossWindows",
		[]edit{{"checkrate.go", "if total > limit-cost {", "if total > limit {"}}},
	{"proofs/verify", "TestDenialTakesNothing",
		[]edit{{"checkrate.go", "\t\t\tr.State, r.TotalRequests = Deny, uint64(total)\n",
			"\t\t\tr.State, r.TotalRequests = Deny, uint64(total)\n" +
				"\t\t\ts.Add(1)\n"}}},
	{"proofs/verify", "TestDenialsDelayNoAdmission",
		[]edit{{"checkrate.go", "\t\t\tr.State, r.TotalRequests = Deny, uint64(total)\n",
			"\t\t\tr.State, r.TotalRequests = Deny, uint64(total)\n" +
				"\t\t\ts.Add(1)\n"}}},
	{"proofs/verify", "TestRetryInstantIsExact",
		[]edit{{"internal/core/windows/window.go", "w.Expires = ws.clock.Time(w.End)",
			"w.Expires = ws.clock.Time(w.End - 1)"}}},
	{"proofs/verify", "TestStepBackWithinTimeoutLosesNothing",
		[]edit{{"internal/core/slots/shard.go", "if now < arith.Add(end, timeout) {", "if now < arith.Add(end, 0*timeout) {"}}},
	{"proofs/verify", "TestReadingsOutOfOrder",
		[]edit{{"internal/core/states/states.go", "h.State, h.Now = e.state, max(now, e.latest)",
			"h.State, h.Now = e.state, now"}}},
	{"proofs/verify", "TestIDsAreCopiedAndBounded",
		[]edit{{"internal/core/states/states.go", "k.ID = strings.Clone(k.ID) //", "_ = strings.Clone //"}}},
	{"proofs/verify", "TestFloodResetsNoCounter",
		[]edit{
			{"internal/core/slots/shard.go", "\tif sh.chunks[i].earliest > now {\n\t\treturn 0\n", "\tif false {\n\t\treturn 0\n"},
			{"internal/core/slots/shard.go", "if now < arith.Add(end, timeout) {", "if now < arith.Add(end, timeout)-6e13 {"},
		}},
	{"proofs/verify", "TestReclaimNeverFailsWhenABucketHasExpired",
		[]edit{{"internal/core/slots/table.go", "if err == nil && !t.full(at.Now) {", "if err == nil {"}}},
	{"proofs/verify", "TestFloodDoesNotBlockKnownCallers",
		[]edit{{"internal/core/slots/table.go", "case c.Slot != nil:\n\t\t\treturn c, nil\n",
			"case c.Slot != nil && t.room.Used() < t.room.Max:\n\t\t\treturn c, nil\n"}}},
	{"proofs/verify", "TestFullTableServesKnownIDs",
		[]edit{
			{"checkrate.go", "case s == nil,", "case s == nil, l.room.Used() >= l.room.Max,"},
			{"internal/core/slots/table.go", "case c.Slot != nil:\n\t\t\treturn c, nil\n",
				"case c.Slot != nil && t.room.Used() < t.room.Max:\n\t\t\treturn c, nil\n"},
		}},
	{"proofs/verify", "TestKnownIDAllocatesNothing",
		[]edit{
			{"checkrate.go", "import (\n", "import (\n\t\"runtime\"\n"},
			{"checkrate.go", "\tr.ExpiresAt = w.Expires\n",
				"\tr.ExpiresAt = w.Expires\n\tnumber := new(int)\n" +
					"\truntime.SetFinalizer(number, nil)\n"},
		}},
	{"proofs/verify", "TestKeysAreInjective",
		[]edit{
			{"internal/core/slots/slot.go", "p := Period{low: uint64(number)<<16 | x&0xffff,",
				"p := Period{low: uint64(number) << 16,"},
			{"internal/core/slots/slot.go", "p.Salt = hi ^ lo", "p.Salt = 0 * (hi ^ lo)"},
		}},
	{"internal/core/slots", "TestReleaseAndRollFailAfterAHit",
		[]edit{{"internal/core/slots/slot.go", "bool { return s.Swap(state, state.next()) }",
			"bool {\n\tatomic.StoreUint64(&s[stateWord], uint64(state.next()))\n\treturn true\n}"}}},
	{"fallback", "TestLateAdmissionsOfNobodyAreGivenBack",
		[]edit{{"fallback/visit.go", "news && !v.a.replaced.Load() {", "news {"}}},
	{"fallback", "TestShortDeadlinesInOverload",
		[]edit{{"fallback/taking.go", "v.settle(ctx, known{unused: true})", ""}}},
	{"fallback", "TestCallsUnderWayWhenOthersFail",
		[]edit{{"fallback/taking.go", "if v.f.aware && ", "if false && "}}},
	{"fallback", "TestOneInstanceAdmitsTheLimit",
		[]edit{{"fallback/taking.go", "plus(share(res.TotalRequests, n), a.ahead.cost())", "share(res.TotalRequests, n)"}}},
	{"fallback", "TestAnAnswerWhileLocalTakesBack", []edit{
		{"fallback/taking.go", "\ta.mu.Lock()\n\tdefer a.mu.Unlock()\n\tv.caughtUp", "\tv.caughtUp"},
		{"fallback/taking.go", "\tv.arrive(res.Allowed())\n",
			"\ta.mu.Lock()\n\tdefer a.mu.Unlock()\n\tv.arrive(res.Allowed())\n"}}},
	{"fallback", "TestCallsUnderWayOfCallersThatLeft",
		[]edit{{"fallback/visit.go", "if v.err != nil { // the call failed", "if false { // the call failed"}}},
	{"fallback", "TestResultsCountCallsUnderWay",
		[]edit{{"fallback/local.go", "r.Cost = cost\n\tif verb == weir.OpPeek {", "r.Cost = cost\n\tif false {"}}},
	{"fallback", "TestPeekWithDebts",
		[]edit{{"fallback/visit.go", "return v.b.Closed() && v.backlog() == nil", "return v.b.Closed()"}}},
	{"fallback", "TestAnswersWhileDebtsAreOwedKeepTheShare",
		[]edit{{"fallback/taking.go", "if seeds && owed == 0 {", "if seeds {"}}},
	{"fallback", "TestOutageWhereWindowsBeginApart",
		[]edit{{"fallback/windows.go", "lag := w.nearest(scale, at)", "lag := int64(0)"}}},
	{"fallback", "TestReturnsOfLateDenialsAreRefunds",
		[]edit{{"fallback/refund.go", "counts && k.source == weir.FromLocal:\n", "counts && k.source == weir.FromLocal:\n\t\tv.kept = k\n"}}},
	{"redislimit", "TestReconcileByTheEarlierInstant",
		[]edit{{"redislimit/lua/reconcile.lua", "math.min(ms - ARGV[8]", "math.max(ms - ARGV[8]"}}},
	{"redislimit", "TestReconcileChargesOnceWhileADebtMayCount",
		[]edit{{"redislimit/lua/reconcile.lua", "math.max(redis.call('PTTL', KEYS[1]), ARGV[#ARGV] + 0)",
			"math.max(redis.call('PTTL', KEYS[1]), 0)"}}},
	{"redislimit", "TestTakenBackLivesAsLongAsTheCount",
		[]edit{{"redislimit/lua/take_back.lua", ", redis.call('PTTL', KEYS[3]))", ")"}}},
	{"redislimit", "TestTakenBackFromAKeyWithoutATimeToLive",
		[]edit{{"redislimit/lua/take_back.lua", "math.max(1, life, redis.call('PTTL', KEYS[1]), ",
			"math.max(1, life, "}}},
	{"near", "TestLeaseInOverload",
		[]edit{{"near/flight.go", "(w.call != c || w.calls < 3)", "true"}}},
	{"near", "TestLeaseOfALargeCostAmongSmallOnes",
		[]edit{{"near/flight.go", "(w.call != c || w.calls < 3)", "true"}}},
	{".", "TestForecastIsWhatAPeekFinds",
		[]edit{{"request.go", "op.More = op.Result.ExpiresAt\n", "op.More = op.Result.ExpiresAt.Add(1)\n"}}},
	{".", "TestBadInputIsNotCounted",
		[]edit{{"request.go", "case limit < 0:", "case false:"}}},
	{"internal/core/clock", "TestClockIgnoresWallClockSteps",
		[]edit{{"internal/core/clock/clock.go", "\treturn c.unix + int64(time.Since(c.start))\n",
			"\treturn time.Now().UnixNano()\n"}}},
	{".", "TestJoinKeyIsInjective",
		[]edit{{"request.go", "\t\tb.WriteString(strconv.Itoa(len(p)))\n", "\t\t_ = strconv.Itoa\n"}}},
	{".", "TestCorrectWithBrokenHash",
		[]edit{{"internal/core/slots/index.go", "(s.load(lowWord)^low)|(s.load(idWord)^k.A)|", "(s.load(lowWord)^low)|"}}},
	{"internal/core/ids", "TestFloodAimedAtOneShard",
		[]edit{{"internal/core/ids/ids.go", "return Packed{a, b, c, (hi ^ lo) & h.Mask}",
			"return Packed{a, b, c, (a ^ b ^ c) & h.Mask}"}}},
	{".", "TestHeldPlacesAreLeasesInASnapshot",
		[]edit{{"internal/core/engine/save.go", "e.Int(f.Held())", "e.Int(0)"}}},
	{".", "TestAPlaceIsHeldUntilItsRelease",
		[]edit{{"in_flight.go", "case h.released.Swap(true):", "case false:"}}},
	{".", "TestHoldWaitWakes",
		[]edit{{"internal/core/engine/places.go", "\t\tclose(f.freed)\n", ""}}},
	{".", "TestHoldWaitIsInOrder",
		[]edit{{"internal/core/turns/turns.go", "return c.queue.callers.Front() == c.place, c.queue.next",
			"return true, c.queue.next"}}},
	{".", "TestNextWaiterTakesOverFromOneThatFails",
		[]edit{{"internal/core/turns/turns.go", "\t\tq.next = time.Time{}\n\t\tnext.Value.(*Caller).signal()\n", ""}}},
	{".", "TestALineKeepsItsRate",
		[]edit{{"internal/core/turns/turns.go", "q.due = later(q.due, due)", "_ = due"}}},
	{".", "TestTheLineOfALeakyBucketKeepsItsRate",
		[]edit{{"internal/core/engine/queue.go", "max(q.Next, w.since, ", "max(now, w.since, "}}},
	{".", "TestWaitersFailWhenTheyCanKnowThatTheirDeadlineIsTooNear",
		[]edit{{"internal/core/turns/turns.go", "if c.Deadline.Before(next) {", "if false {"}}},
	{"limits", "TestCancelAfterResetGivesNothingBack",
		[]edit{{"internal/core/slots/locked.go", "id := Identity{mark: c.Mark()}", "id := Identity{mark: 1}"}}},
	{".", "TestRestoredLimiterDecidesAsTheSavedOne",
		[]edit{{"internal/core/engine/slots.go", "Merge(c.Have, saved, scaleMs, c.Now, MaxAhead)",
			"Merge(c.Have, slots.Content{N: saved.N}, scaleMs, c.Now, MaxAhead)"}}},
	{".", "TestLoadRaisesCounts",
		[]edit{{"internal/core/algorithm/fixed_window.go", "s.N = max(s.N, other.N)", "s.N += other.N"}}},
	{".", "TestLoadKeepsWhoHasCountedMost",
		[]edit{{"snapshot.go", "\t\tin.MostCountedFirst(records)\n", ""}}},
	{"limits", "TestReturnGivesBackWhatWasTaken",
		[]edit{{"counter.go", "\tif op.Result.Allowed() {\n\t\top.Receipt.Cost", "\tif true {\n\t\top.Receipt.Cost"}}},
	{"limits", "TestReturnInPartsGivesBackAsMuchAsOne",
		[]edit{{"internal/core/engine/slots.go", "arith.Mul(uint64(t.Before), p.Each))", "arith.Mul(0*uint64(t.Before), p.Each))"}}},
	{"limits", "TestPartialReturnsOfATokenBucket",
		[]edit{{"internal/core/engine/slots.go", "arith.Mul(uint64(t.Before), p.Each))", "arith.Mul(0*uint64(t.Before), p.Each))"}}},
	{"redislimit", "TestPartialReturnsOfATokenBucket",
		[]edit{{"redislimit/token_bucket.go", "grow(before, p.Each)", "grow(0*before, p.Each)"}}},
	{"redislimit", "TestCancelAfterResetGivesNothingBack",
		[]edit{{"limits/reserve.go", "m.Op.Keep, m.Op.Full, ops[i] = true, true, &m.Op", "m.Op.Keep, m.Op.Full, ops[i] = false, true, &m.Op"}}},
	{"redislimit", "TestWorkInFlightIsHeldBesideALimit",
		[]edit{{"limits/attempt.go", "if verb == weir.OpTake && l.holds {", "if false {"}}},
	{"cmd/weir/internal/serve/proxy", "TestTheLastPieceIsBoundedToo",
		[]edit{{"cmd/weir/internal/serve/proxy/journal.go",
			"defer func() { _ = meter.hurry() }() //", "//"}}},
	{".", "TestForwardJumpSweepsOnce",
		[]edit{{"janitor.go", "\t\t\tj.sweep(now)\n", "\t\t\tj.sweep(now)\n\t\t\tj.sweep(now)\n"}}},
	{"rules", "TestKeysDoNotCollide",
		[]edit{{"rules/key.go", "dst = strconv.AppendInt(dst, int64(len(s)), 10)",
			"dst = strconv.AppendInt(dst, 1, 10)"}}},
	{"redislimit", "TestLostExpiryIsRestored",
		[]edit{{"redislimit/lua/sliding_window.lua", "if call('PTTL', key) == -1 then", "if false then"}}},
	{"httplimit", "TestRetryAfterIsExact",
		[]edit{{"httplimit/headers.go", "\t\ts++\n", ""}}},
	{"metrics", "TestLabelIsBounded",
		[]edit{{"metrics/metrics.go", "if l.n.Load() >= MaxValues || l.n.Add(1) > MaxValues {",
			"if l.n.Add(1) > 2*MaxValues {"}}},
	{"httplimit", "TestJitterOnlyAddsDelay",
		[]edit{{"httplimit/answer.go", "= randomSeconds(a.guard.cfg.Jitter)", "= -randomSeconds(a.guard.cfg.Jitter)"}}},
	{"httplimit", "TestAddressNotationsShareKey",
		[]edit{{"internal/doors/clientaddr/address.go", "return addr.Unmap().WithZone(", "return addr.WithZone("}}},
	{"httplimit", "TestLogLinesCannotBeForged",
		[]edit{{"httplimit/guard.go", "\t\treturn strconv.QuoteToASCII(key)\n", "\t\treturn key\n"}}},
	{"httplimit", "TestHijackedWithoutAStatusCounts",
		[]edit{{"httplimit/count_if.go", "return status <= 0 || countIf(status)",
			"return countIf(status)"}}},
	{"httplimit", "TestCountIfSeesEveryStatusAndKeepsInterfaces",
		[]edit{{"httplimit/count_if.go", "return status <= 0 || countIf(status)",
			"_ = status\n\t\treturn true"}}},
}

// Each fault changes a text that is there once.
func TestFaultsOfClaimsAreCurrent(t *testing.T) {
	for _, f := range claimFaults {
		for _, e := range f.edits {
			src, err := os.ReadFile(filepath.Join("..", "..", e.file))
			require.NoError(t, err)
			assert.Equal(t, 1, strings.Count(string(src), e.text), "of %s, in %s:\n%s",
				f.test, e.file, e.text)
		}
	}
}

func TestFaultsOfClaimsAreRejected(t *testing.T) {
	if slow.N(0, 0, 1) == 0 {
		t.Skip("slow, for it compiles each fault: make nightly runs it")
	}
	for _, f := range claimFaults {
		t.Run(f.test, func(t *testing.T) {
			t.Parallel()
			out := testEdited(t, f.dir, f.test, f.edits, ".", "-timeout", "2m")
			assert.True(t, strings.Contains(out, "--- FAIL: "+f.test), "not detected:\n%s", head(out))
		})
	}
}
