module github.com/weirgo/weir/examples // not published

go 1.26.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/prometheus/client_golang v1.25.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/stretchr/testify v1.12.1
	github.com/weirgo/weir v0.1.0
	github.com/weirgo/weir/metrics/weirprom v0.1.0
	github.com/weirgo/weir/redislimit v0.1.0
	github.com/weirgo/weir/rules v0.1.0
	golang.org/x/sync v0.22.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/weirgo/weir => ..
	github.com/weirgo/weir/metrics/weirprom => ../metrics/weirprom
	github.com/weirgo/weir/redislimit => ../redislimit
	github.com/weirgo/weir/rules => ../rules
)
