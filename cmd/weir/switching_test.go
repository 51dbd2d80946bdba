package main

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirgo/weir/internal/testkit/docblocks"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// login is a request for a login of one address; it counts nothing with 0 hits.
func login(
	t *testing.T, client pb.RateLimitServiceClient, addr netip.Addr, hits uint64,
) *pb.RateLimitResponse {
	t.Helper()
	in := &pb.RateLimitRequest{Domain: "edge"}
	for _, e := range []*common.RateLimitDescriptor_Entry{
		{Key: "remote_address", Value: addr.String()}, {Key: "path", Value: "/login"},
	} {
		in.Descriptors = append(in.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{e}, HitsAddend: wrapperspb.UInt64(hits)})
	}
	resp, err := client.ShouldRateLimit(t.Context(), in)
	require.NoError(t, err)
	return resp
}

// TestSwitchingFromEnvoy goes the way that docs/switching.md describes: it runs the command of the
// text with the rules of the text, on a real Redis, and the second without --count-denied while the
// first still runs. The
// first step counts a denied login on both limits, as the table says of the service before, and the
// second on none. The counts are kept from one to the other, and both survive a Redis that is down.
func TestSwitchingFromEnvoy(t *testing.T) {
	const page = "../../docs/switching.md"
	blocks := docblocks.Of(t, page, "## envoyproxy/ratelimit")
	require.Len(t, blocks, 2, "the rules and the first command")
	rules, command := blocks[0].Code, blocks[1].Code
	commands := []string{command, strings.Replace(command, " --count-denied", "", 1)}
	whole, err := os.ReadFile(page)
	require.NoError(t, err)
	row := regexp.MustCompile(
		`(?m)^\| a sixth login, denied by .path.: left of the 100 of .remote_address. \| (\d+) \| ` +
			`(\d+) \|$`,
	).FindStringSubmatch(string(whole))
	require.NotNil(t, row)
	help, err := exec.Command("weir", "serve", "--help").Output()
	require.NoError(t, err)
	assert.Contains(t, string(help), strings.TrimSpace(commands[1]), "the help shows the same command")
	server := redistest.Start(t)
	t.Chdir(t.TempDir())
	// Windows of a year do not end during the test.
	text := strings.ReplaceAll(rules, "unit: minute", "unit: year")
	require.NotEqual(t, rules, text)
	require.NoError(t, os.WriteFile("edge.yaml", []byte(text), 0o600))

	var clients []pb.RateLimitServiceClient
	for i, command := range commands {
		args := strings.Fields(command)
		require.Equal(t, []string{"weir", "serve"}, args[:2])
		require.Equal(t, i == 0, slices.Contains(args, "--count-denied"))
		for at, arg := range args { // the ports of this test
			args[at] = map[string]string{":8081": "127.0.0.1:0",
				"redis://127.0.0.1:6379": "redis://" + server.Addr}[arg]
			if args[at] == "" {
				args[at] = arg
			}
		}
		s := serveProcess(t, append(args[2:], "--redis-timeout", "2s")...)
		clients = append(clients, pb.NewRateLimitServiceClient(s.dial(t, nil)))
	}
	second := clients[1]
	one := netip.MustParseAddr("192.0.2.1")
	left := func(client pb.RateLimitServiceClient) string {
		return strconv.Itoa(int(login(t, client, one, 0).Statuses[0].LimitRemaining))
	}
	for step, client := range clients {
		for range 5 {
			require.Equal(t, pb.RateLimitResponse_OK, login(t, client, one, 1).OverallCode)
		}
		assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, login(t, client, one, 1).OverallCode)
		assert.Equal(t, row[1+step], left(client), "as the table says")
		if step == 0 {
			assert.Equal(t, row[1], left(second), "the second step keeps the counts")
			admin := redis.NewClient(redislimit.Options(server.Addr))
			require.NoError(t, admin.FlushAll(t.Context()).Err())
			require.NoError(t, admin.Close())
		}
	}

	server.Kill()
	for _, client := range clients {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := client.ShouldRateLimit(ctx,
			&pb.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
				{Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.3"}}}}})
		cancel()
		assert.NoError(t, err, "each server goes on with its part of the limit")
	}
}
