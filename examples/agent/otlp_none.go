//go:build !otlp

package main

import "github.com/nodewright/nodewright/nodeagent"

// moreFields are the fields of the configuration that only a build with the tag otlp uses.
var moreFields []string

// exporter returns no maker: without the tag otlp, no exporter for OpenTelemetry is linked.
func exporter() []nodeagent.Maker { return nil }
