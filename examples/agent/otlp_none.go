//go:build !otlp

package main

import "github.com/nodewright/nodewright/nodeagent"

// moreFields are the configuration fields that have an effect only with the build tag otlp.
var moreFields []string

// exporter returns no maker: the OpenTelemetry exporter is only linked with the build tag otlp.
func exporter() []nodeagent.Maker { return nil }
