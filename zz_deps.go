//go:build deps

// Package nodewright ...
package nodewright

import (
	_ "github.com/coreos/go-systemd/v22/daemon"
	_ "github.com/distribution/reference"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/gorilla/websocket"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "go.uber.org/zap"
	_ "go.uber.org/zap/zaptest"
	_ "go.uber.org/zap/zaptest/observer"
	_ "golang.org/x/net/websocket"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "golang.org/x/time/rate"
	_ "google.golang.org/grpc"
	_ "google.golang.org/grpc/test/bufconn"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apimachinery/pkg/runtime"
	_ "k8s.io/apimachinery/pkg/util/validation"
	_ "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/cri-api/pkg/apis"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1"
	_ "k8s.io/kubelet/config/v1beta1"
	_ "sigs.k8s.io/yaml"
)
