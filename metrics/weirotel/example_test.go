package weirotel_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirotel"
)

// A limiter whose figures are collected by the SDK.
func ExampleRegister() {
	limiter, err := weir.New(weir.Config{MaxBuckets: 1000})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	reader := sdk.NewManualReader() // a program has one that exports
	meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("example.com/app")
	if _, err := weirotel.Register(meter, "", metrics.Limiter(limiter.Stats)); err != nil {
		panic(err)
	}

	if _, err := limiter.CheckRate("10.0.0.7", 60_000, 10); err != nil {
		panic(err)
	}
	var read metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &read); err != nil {
		panic(err)
	}
	for _, m := range read.ScopeMetrics[0].Metrics {
		if g, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name != "weir.last_sweep" {
			fmt.Println(m.Name, g.DataPoints[0].Value)
		}
	}
	// Output:
	// weir.buckets 1
	// weir.max_buckets 1000
	// weir.hold.places 0
}
