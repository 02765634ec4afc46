// Program prometheus scrapes a node's endpoints with Prometheus' own scraper, keeps
// the samples in its own database, evaluates expressions with its own engine, and
// prints for each of them the number of series that came of it.
//
// It is a module of its own, so that what Prometheus needs stays out of the graphs of
// those who build nodewright or its tests.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
)

func main() {
	file := flag.String("config", "", "a Prometheus configuration; of its discovery, static targets alone are used")
	queries := flag.String("queries", "", "a file with an expression on each line: name, tab, expression")
	wait := flag.Duration("for", 30*time.Second, "how long to scrape at most until every expression has data")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *file, *queries, *wait); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// errEmpty means that expressions have no data at the end.
var errEmpty = errors.New("expressions without data")

type query struct{ name, expr string }

func run(ctx context.Context, file, queries string, wait time.Duration) error {
	all, err := read(queries)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg, err := config.LoadFile(file, false, log)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	dir, err := os.MkdirTemp("", "prometheus-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := tsdb.Open(dir, log, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { _ = db.Close() }()
	m, err := scrape.NewManager(&scrape.Options{}, log, nil, db, nil, prometheus.NewRegistry())
	if err != nil {
		return fmt.Errorf("make a scraper: %w", err)
	}
	if err := m.ApplyConfig(cfg); err != nil {
		return fmt.Errorf("apply the configuration: %w", err)
	}
	sets := make(chan map[string][]*targetgroup.Group, 1)
	sets <- targets(cfg)
	done := make(chan error, 1)
	go func() { done <- m.Run(sets) }()
	defer func() { m.Stop(); <-done }()

	e := promql.NewEngine(promql.EngineOpts{
		Logger: log, Timeout: 10 * time.Second, MaxSamples: 1 << 22, LookbackDelta: 5 * time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{}),
	})
	end, tick := time.NewTimer(wait), time.NewTicker(time.Second)
	defer end.Stop()
	defer tick.Stop()
	for last := false; ; {
		counts, empty := map[string]string{}, 0
		for _, q := range all {
			n, err := count(ctx, e, db, q.expr)
			switch {
			case err != nil:
				counts[q.name], empty = err.Error(), empty+1
			case n == 0:
				counts[q.name], empty = "0", empty+1
			default:
				counts[q.name] = fmt.Sprint(n)
			}
		}
		if empty == 0 || last {
			for _, q := range all {
				fmt.Printf("%s\t%s\n", counts[q.name], q.name)
			}
			if empty > 0 {
				return fmt.Errorf("%w: %d of %d", errEmpty, empty, len(all))
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			last = true
		case <-tick.C:
		}
	}
}

func read(file string) (out []query, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, expr, ok := strings.Cut(line, "\t")
		if !ok {
			return nil, fmt.Errorf("%s: no tab in %q", file, line)
		}
		out = append(out, query{name, strings.TrimSpace(expr)})
	}
	return out, s.Err()
}

// targets are the static ones of each job.
func targets(cfg *config.Config) map[string][]*targetgroup.Group {
	out := map[string][]*targetgroup.Group{}
	for _, job := range cfg.ScrapeConfigs {
		for _, d := range job.ServiceDiscoveryConfigs {
			if static, ok := d.(discovery.StaticConfig); ok {
				out[job.JobName] = append(out[job.JobName], static...)
			}
		}
		for i, g := range out[job.JobName] {
			g.Source = fmt.Sprint(i)
		}
	}
	return out
}

func count(ctx context.Context, e *promql.Engine, db *tsdb.DB, expr string) (int, error) {
	q, err := e.NewInstantQuery(ctx, db, nil, expr, time.Now())
	if err != nil {
		return 0, err
	}
	defer q.Close()
	r := q.Exec(ctx)
	if r.Err != nil {
		return 0, r.Err
	}
	switch v := r.Value.(type) {
	case promql.Vector:
		return len(v), nil
	case promql.Matrix:
		return len(v), nil
	default:
		return 1, nil
	}
}
