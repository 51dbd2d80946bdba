module github.com/weirgo/weir/proofs/interop // not published

go 1.26.0

require (
	github.com/grpc-ecosystem/go-grpc-middleware/v2 v2.3.4
	github.com/stretchr/testify v1.12.1
	github.com/weirgo/weir v0.1.0
	github.com/weirgo/weir/adapters/grpclimit v0.1.0
	github.com/weirgo/weir/adapters/xrate v0.1.0
	golang.org/x/time v0.16.0
	google.golang.org/grpc v1.85.0
	k8s.io/client-go v0.37.2
)

require (
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // indirect
)

replace (
	github.com/weirgo/weir => ../..
	github.com/weirgo/weir/adapters/grpclimit => ../../adapters/grpclimit
	github.com/weirgo/weir/adapters/xrate => ../../adapters/xrate
	github.com/weirgo/weir/redislimit => ../../redislimit
	github.com/weirgo/weir/rules => ../../rules
)
