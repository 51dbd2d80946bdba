package unittest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/weirtest"
)

// mailbox counts the mails to each address.
type mailbox map[string]int

func (m mailbox) mail(address string) error {
	m[address]++
	return nil
}

// What the service does with a verdict is tested with a Fake: no windows, no counting, no time.

func TestDeniedAddressGetsNoMail(t *testing.T) {
	sent := mailbox{}
	resets := &Resets{weirtest.DenyKeys("mallory@example.com"), sent.mail}

	if err := resets.Request(t.Context(), "alice@example.com"); err != nil {
		t.Errorf("alice was refused: %v", err)
	}
	var tooMany *TooMany
	if err := resets.Request(t.Context(), "mallory@example.com"); !errors.As(err, &tooMany) {
		t.Errorf("mallory got %v, want TooMany", err)
	}
	if sent["alice@example.com"] != 1 || sent["mallory@example.com"] != 0 {
		t.Errorf("sent %v, want one mail, to alice", sent)
	}
}

func TestMailGoesOutWhenTheLimiterIsDown(t *testing.T) {
	sent := mailbox{}
	resets := &Resets{weirtest.FailAll(errors.New("redis is down")), sent.mail}

	if err := resets.Request(t.Context(), "alice@example.com"); err != nil ||
		sent["alice@example.com"] != 1 {
		t.Errorf("got %v and sent %v, want one mail", err, sent)
	}
}

func TestFailedMailIsRefunded(t *testing.T) {
	fake := &weirtest.Fake{}
	fake.Expect("Run", weir.Request{Key: "alice@example.com", Limit: 3, Duration: time.Hour})
	fake.Expect("Refund", weir.Request{Key: "alice@example.com"})
	defer fake.Verify(t) // says which of the two was not seen

	bounce := errors.New("mailbox full")
	resets := &Resets{fake, func(string) error { return bounce }}
	if err := resets.Request(t.Context(), "alice@example.com"); !errors.Is(err, bounce) {
		t.Errorf("got %v, want %v", err, bounce)
	}
}

// What the limit means is tested with the real limiter, in a bubble in which an hour passes at
// once.

func TestThreeMailsAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		sent := mailbox{}
		resets := &Resets{limiter.SlidingWindow(), sent.mail}

		var tooMany *TooMany
		for range 5 {
			err = resets.Request(t.Context(), "alice@example.com")
		}
		if !errors.As(err, &tooMany) || sent["alice@example.com"] != 3 {
			t.Fatalf("got %v and sent %v, want 3 mails and then TooMany", err, sent)
		}

		time.Sleep(time.Until(tooMany.Until) - time.Nanosecond)
		if err := resets.Request(t.Context(), "alice@example.com"); err == nil {
			t.Error("a mail went out before its time")
		}
		time.Sleep(time.Nanosecond)
		if err := resets.Request(t.Context(), "alice@example.com"); err != nil {
			t.Errorf("got %v at the stated instant", err)
		}
	})
}

// Where a bubble does not fit, because the test talks to a real server, say, the limiter alone can
// run on virtual time.

func TestThreeMailsAnHourOnAClock(t *testing.T) {
	clock := weirtest.NewClock(time.Date(2026, 3, 1, 12, 59, 59, 0, time.UTC))
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	sent := mailbox{}
	resets := &Resets{limiter.SlidingWindow(), sent.mail}

	request := func() (n int) {
		for range 5 {
			if resets.Request(context.Background(), "alice@example.com") == nil {
				n++
			}
		}
		return n
	}
	if n := request(); n != 3 {
		t.Errorf("%d of 5 passed, want 3", n)
	}
	clock.Advance(2 * time.Hour)
	if n := request(); n != 3 {
		t.Errorf("%d of 5 passed two hours later, want 3", n)
	}
}
