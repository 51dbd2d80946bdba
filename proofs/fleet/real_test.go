package fleet_test

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/proofs/fleet"
	"github.com/weirgo/weir/redislimit/redistest"
)

// Three processes of weir proxy on a real Redis need as many commands for a decision as the
// simulation of such a fleet says, within 15 %. Without leases, the control, the simulation says
// something else.
func TestModelEqualsProcesses(t *testing.T) {
	slow.Test(t)
	const requests = 12_000
	f := fleet.Fleet{
		Instances: 3, Block: 20, Denials: true, Limit: 500, Window: 4 * time.Second,
		Length:  4 * time.Second,
		Callers: 200, Skew: 1, Rate: requests / 4, RoundTrip: time.Millisecond,
	}
	commands, admitted := processes(t, f, requests)
	real := float64(commands) / requests
	out := simulate(t, f)
	model := float64(out.Commands) / float64(out.Decisions)
	t.Logf("commands a decision: %.4f by processes, %.4f by the model", real, model)
	assert.InEpsilon(t, real, model, 0.15)
	assert.InEpsilon(t, float64(admitted), float64(out.Admitted), 0.05)

	f.Block = 0
	out = simulate(t, f)
	assert.Greater(t, math.Abs(float64(out.Commands)/float64(out.Decisions)-real), 0.15*real,
		"the control")
}

// processes runs f as processes, which get requests of callers drawn as in a simulation. It returns
// how many commands Redis ran, and how many requests were admitted.
func processes(t *testing.T, f fleet.Fleet, requests int) (commands, admitted int) {
	weir := filepath.Join(t.TempDir(), "weir-server")
	build := slow.Command(t.Context(), "build", "-ldflags", "-s -w", "-o", weir, "./weir-server")
	build.Dir = "../../cmd/weir"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	redis := redistest.Start(t)
	var urls []string
	for range f.Instances {
		addr := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
		// Each caller has one window, whenever the test runs.
		start(t, addr, weir, "proxy", "--listen", addr, "--admin", "off", "--access-log", "off", "--by",
			"header:Caller",
			"--limit", fmt.Sprintf("%d/365d:fixed", f.Limit), "--redis", "redis://"+redis.Addr, "--redis-timeout",
			"5s",
			"--instances", strconv.Itoa(f.Instances), "--redis-lease", strconv.Itoa(f.Block),
			"--redis-denials", "16384")
		urls = append(urls, "http://"+addr)
	}
	before := commandsRun(t, redis)
	var weights []float64
	total := 0.0
	for i := range f.Callers {
		total += math.Pow(float64(i+1), -f.Skew)
		weights = append(weights, total)
	}
	const workers = 8
	var g errgroup.Group
	passed := make([]int, workers)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	for w := range workers {
		random := rand.New(rand.NewPCG(1, uint64(w)))
		g.Go(func() error {
			for range requests / workers {
				at, caller := random.Float64()*total, 0
				for weights[caller] < at {
					caller++
				}
				r, err := http.NewRequest(http.MethodGet, urls[random.IntN(len(urls))], nil)
				if err != nil {
					return err
				}
				r.Header.Set("Caller", strconv.Itoa(caller))
				resp, err := client.Do(r)
				if err != nil {
					return err
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusOK:
					passed[w]++
				case http.StatusTooManyRequests:
				default:
					return fmt.Errorf("status %s", resp.Status)
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for _, n := range passed {
		admitted += n
	}
	return commandsRun(t, redis) - before, admitted
}

// start starts a server, which ends with the test, and waits until it accepts connections.
func start(t *testing.T, addr, name string, args ...string) {
	cmd := exec.Command(name, args...)
	cmd.Dir = t.TempDir()
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond, "%s does not serve", name)
}

// commandsRun returns how many scripts a Redis has run.
func commandsRun(t *testing.T, redis *redistest.Server) (n int) {
	text, _ := redis.Do("info", "commandstats").(string)
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":calls=")
		if !ok || name != "cmdstat_evalsha" && name != "cmdstat_eval" {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		more, err := strconv.Atoi(calls)
		require.NoError(t, err)
		n += more
	}
	return n
}
