package redistest

import "time"

// Watch starts to look how late the machine is: how long a goroutine that sleeps for a millisecond
// oversleeps. The function it returns ends that, and returns the worst. No deadline can be kept
// better, so what is held to milliseconds may be as much later: next to nothing on a quiet machine.
func Watch() (late func() time.Duration) {
	stop, worst := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var w time.Duration
		for {
			start := time.Now()
			time.Sleep(time.Millisecond) // how late it returns is what is measured
			w = max(w, time.Since(start)-time.Millisecond)
			select {
			case <-stop:
				worst <- w
				return
			default:
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-worst
	}
}
