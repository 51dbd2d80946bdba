package pages

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httpclient"
)

// Pace is how many bytes a second may pass, and how many of them at once.
type Pace struct {
	Limit *weir.Limit // of a token bucket
	Burst int         // of the bucket, not 0: the most in one call
	Key   string      // equal keys share one pace
}

// wait returns once n bytes may pass.
func (p *Pace) wait(ctx context.Context, n int) error {
	_, err := weir.Wait(ctx, p.Limit, &weir.Request{Key: p.Key, Cost: uint64(n)})
	return err
}

// PacedReader reads from R at a pace.
type PacedReader struct {
	Ctx context.Context
	R   io.Reader
	*Pace
}

func (r PacedReader) Read(b []byte) (int, error) {
	n, err := r.R.Read(b[:min(len(b), r.Burst)])
	if n > 0 { // a Cost of 0 is 1
		if late := r.wait(r.Ctx, n); late != nil {
			return n, late
		}
	}
	return n, err
}

// PacedWriter writes to W at a pace, and more than the burst in parts.
type PacedWriter struct {
	Ctx context.Context
	W   io.Writer
	*Pace
}

func (w PacedWriter) Write(b []byte) (written int, err error) {
	for written < len(b) && err == nil {
		part := b[written:min(len(b), written+w.Burst)]
		if err = w.wait(w.Ctx, len(part)); err == nil {
			var n int
			n, err = w.W.Write(part)
			written += n
		}
	}
	return written, err
}

func TestBytesArePaced(t *testing.T) {
	for _, burst := range []uint64{1 << 10, 32 << 10} {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := weir.New(weir.Config{})
			require.NoError(t, err)
			defer limiter.Close()
			pace := func(key string) *Pace {
				return &Pace{limiter.TokenBucket(burst).Limit(64<<10, time.Second), int(burst), key}
			}
			data := bytes.Repeat([]byte("a line of text\n"), 1<<16) // 960 KiB: 15 s
			var copied bytes.Buffer
			start := time.Now()
			_, err = io.Copy(&copied, PacedReader{t.Context(), bytes.NewReader(data), pace("read")})
			require.NoError(t, err)
			assert.True(t, bytes.Equal(data, copied.Bytes()))
			saved := time.Duration(burst) * time.Second / (64 << 10) // the burst at the start
			assert.InDelta(t, 15*time.Second-saved, time.Since(start), float64(50*time.Millisecond))

			copied.Reset()
			start = time.Now()
			// more than the burst at once
			n, err := PacedWriter{t.Context(), &copied, pace("write")}.Write(data)
			require.NoError(t, err)
			assert.Equal(t, len(data), n)
			assert.True(t, bytes.Equal(data, copied.Bytes()))
			assert.InDelta(t, 15*time.Second-saved, time.Since(start), float64(50*time.Millisecond))

			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = io.Copy(io.Discard, PacedReader{ctx, bytes.NewReader(data), pace("read")})
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestClientKeepsTheServersLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer limiter.Close()
		var last time.Time
		refused := 0
		server := roundTripper(func(r *http.Request) (*http.Response, error) { // one request a second
			resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
			if since := time.Since(last); since < time.Second {
				resp.StatusCode = http.StatusTooManyRequests
				resp.Header.Set("Retry-After", "2")
				refused++
			} else {
				last = time.Now()
			}
			return resp, nil
		})

		client := &http.Client{Transport: &httpclient.Transport{
			Limit: limiter.LeakyBucket(0).Limit(1, time.Second), // what its documentation says
			Base:  server,                                       // leave out: http.DefaultTransport
		}}

		start := time.Now()
		for range 10 {
			resp, err := client.Get("http://api.example.com/")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		assert.Zero(t, refused)
		assert.Equal(t, 9*time.Second, time.Since(start))

		// Without a limit of its own it is refused once, and then pauses for as long as the server asks.
		client = &http.Client{Transport: &httpclient.Transport{Base: server}}
		last, start = time.Now(), time.Now()
		for _, want := range []int{http.StatusTooManyRequests, http.StatusOK} {
			resp, err := client.Get("http://api.example.com/")
			require.NoError(t, err)
			assert.Equal(t, want, resp.StatusCode)
		}
		assert.Equal(t, 2*time.Second, time.Since(start))
	})
}

// A pause holds back the requests of one key.
func TestClientWithALimitForEachPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
			if r.URL.Path == "/search" {
				resp.Header.Set("X-RateLimit-Remaining", "0")
				resp.Header.Set("X-RateLimit-Reset", "60")
			}
			return resp, nil
		})

		client := &http.Client{Transport: &httpclient.Transport{
			Key:  func(r *http.Request) string { return r.URL.Host + r.URL.Path }, // a limit for each path
			Base: server,
		}}

		start := time.Now()
		for _, row := range []struct {
			path string
			want time.Duration
		}{{"/search", 0}, {"/user", 0}, {"/search", time.Minute}} {
			resp, err := client.Get("http://api.example.com" + row.path)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, row.want, time.Since(start), row.path)
		}
	})
}

// Job is a job of a tenant.
type Job struct {
	Tenant string
	Run    func()
}

// Worker runs jobs, of each tenant at most ten a second. A tenant over its limit keeps no others
// waiting.
func Worker(
	ctx context.Context, tenants *weir.Limit, jobs <-chan Job, later func(Job, time.Duration),
) error {
	for job := range jobs {
		out, err := tenants.Take(ctx, job.Tenant, 1)
		switch {
		case err != nil:
			return err
		case out.Allowed():
			job.Run()
		default:
			later(job, out.Wait) // it passes then, unless others take its place
		}
	}
	return nil
}

func TestJobsOfATenantKeepNoOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer limiter.Close()
		start := time.Now()
		ran := map[string][]time.Duration{}
		jobs := make(chan Job, 100)
		for range 25 {
			jobs <- Job{"big", func() { ran["big"] = append(ran["big"], time.Since(start)) }}
		}
		jobs <- Job{"small", func() { ran["small"] = append(ran["small"], time.Since(start)) }}
		later := func(job Job, wait time.Duration) {
			time.AfterFunc(wait, func() { jobs <- job })
		}
		time.AfterFunc(time.Minute, func() { close(jobs) })
		require.NoError(t, Worker(t.Context(), limiter.FixedWindow().Limit(10, time.Second), jobs, later))
		assert.Equal(t, []time.Duration{0}, ran["small"])
		require.Len(t, ran["big"], 25)
		assert.Equal(t, 2*time.Second, ran["big"][24])
	})
}
