package otlp_test

import (
	"context"
	"fmt"
	"log"
	"net"

	collectorlogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"

	"github.com/nodewright/nodewright/record"
	"github.com/nodewright/nodewright/record/otlp"
)

// collector is an OpenTelemetry collector for logs.
type collector struct {
	collectorlogs.UnimplementedLogsServiceServer
}

func (collector) Export(_ context.Context, r *collectorlogs.ExportLogsServiceRequest) (*collectorlogs.ExportLogsServiceResponse, error) {
	for _, l := range r.GetResourceLogs()[0].GetScopeLogs()[0].GetLogRecords() {
		fmt.Println(l.GetSeverityText(), l.GetEventName(), l.GetBody().GetStringValue())
	}
	return &collectorlogs.ExportLogsServiceResponse{}, nil
}

// A program with an agent of its own sends what it learns.
func Example() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	defer server.Stop()
	collectorlogs.RegisterLogsServiceServer(server, collector{})
	go func() { _ = server.Serve(l) }()

	x, err := otlp.New(otlp.Config{Endpoint: l.Addr().String(), Node: "edge-7"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- x.Run(ctx) }()

	x.Record(record.Entry{
		Pod:       record.Pod{Namespace: "shop", Name: "web", UID: "1"},
		Container: "app",
		Fact:      &record.Probe{ID: "a", Type: "liveness", Code: 503},
	})
	cancel()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: WARN probe {"id":"a","type":"liveness","code":503}
}
