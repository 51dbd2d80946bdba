module github.com/weirgo/weir/adapters/connectlimit

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	github.com/stretchr/testify v1.12.1
	github.com/weirgo/weir v0.1.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.22.0 // indirect
)
