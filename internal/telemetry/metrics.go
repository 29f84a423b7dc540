package telemetry

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// gatherTimeout bounds the reading of state while somebody scrapes.
const gatherTimeout = 5 * time.Second

// Metrics are cubby's own numbers in a registry of their own. The label values
// come from fixed sets (routes, states, reasons), so their number is bounded
// whatever clients send. A nil *Metrics records nothing.
type Metrics struct {
	registry *prometheus.Registry

	requests       *prometheus.CounterVec
	requestSeconds *prometheus.HistogramVec
	creates        *prometheus.CounterVec
	createSeconds  *prometheus.HistogramVec
	execs          *prometheus.CounterVec
	execSeconds    prometheus.Histogram
	egress         *prometheus.CounterVec
	egressSeconds  *prometheus.HistogramVec
	egressUnlisted prometheus.Counter
	diskFrozen     prometheus.Gauge
	diskFree       prometheus.Gauge
	disksFailed    prometheus.Gauge
	diskFailures   prometheus.Counter
}

// NewMetrics registers all metrics, those of the Go runtime included.
func NewMetrics(version string) *Metrics {
	m := newMetrics(version)
	m.registry.MustRegister(
		m.requests, m.requestSeconds, m.creates, m.createSeconds, m.execs, m.execSeconds, m.diskFrozen, m.diskFree, m.disksFailed, m.diskFailures,
	)
	return m
}

// NewEgressMetrics registers those of a proxy that runs alone, under the same
// names.
func NewEgressMetrics(version string) *Metrics { return newMetrics(version) }

// newMetrics makes all metrics and registers those that every program has.
func newMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cubby_http_requests_total", Help: "Requests by route pattern and status.",
		}, []string{"method", "route", "status"}),
		requestSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cubby_http_request_seconds", Help: "Time to the end of the response, by route pattern.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 120},
		}, []string{"method", "route"}),
		creates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cubby_sandbox_creates_total", Help: "Creates by isolation and result (ok or the kind of the error).",
		}, []string{"isolation", "result"}),
		createSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cubby_sandbox_create_seconds", Help: "Time of a successful create until the sandbox answers.",
			Buckets: []float64{.005, .01, .02, .05, .1, .15, .2, .3, .5, 1, 2, 5, 15},
		}, []string{"isolation"}),
		execs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cubby_execs_total", Help: "Finished execs by the reason of their end.",
		}, []string{"reason"}),
		execSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cubby_exec_seconds", Help: "Run time of finished execs.",
			Buckets: []float64{.001, .0025, .005, .01, .05, .1, .5, 1, 5, 30, 60, 300, 1800},
		}),
		egress: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cubby_egress_decisions_total", Help: "Decisions of the egress proxy, by the kind of rule that decided.",
		}, []string{"decision", "rule"}),
		egressSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cubby_egress_connection_seconds", Help: "How long allowed connections lasted, by protocol and end.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 120, 600, 3600},
		}, []string{"protocol", "end"}),
		egressUnlisted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cubby_egress_unlisted_total", Help: "Connections and denials that have no event of their own in their sandbox's history.",
		}),
		diskFrozen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cubby_disk_frozen", Help: "1 while the sandboxes' disks are frozen because the host's disk is nearly full.",
		}),
		diskFree: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cubby_disk_free_bytes", Help: "Free space of the file system that holds the sandboxes' disks, as last measured.",
		}),
		disksFailed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cubby_disks_failed", Help: "Disks that are read-only because writing to the host's disk failed, and are not repaired yet.",
		}),
		diskFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cubby_disk_failures_total", Help: "Times that a disk became read-only because writing to the host's disk failed.",
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cubby_build_info", Help: "1, labelled with the version.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(
		m.egress, m.egressSeconds, m.egressUnlisted, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Request records one finished request. Route is the pattern that matched.
func (m *Metrics) Request(method, route string, status int, d time.Duration) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.requestSeconds.WithLabelValues(method, route).Observe(d.Seconds())
}

// Create records one finished create; result is "ok" or the kind of its error.
func (m *Metrics) Create(isolation, result string, d time.Duration) {
	if m == nil {
		return
	}
	m.creates.WithLabelValues(isolation, result).Inc()
	if result == "ok" {
		m.createSeconds.WithLabelValues(isolation).Observe(d.Seconds())
	}
}

// Exec records one finished exec.
func (m *Metrics) Exec(reason string, d time.Duration) {
	if m == nil {
		return
	}
	m.execs.WithLabelValues(reason).Inc()
	m.execSeconds.Observe(d.Seconds())
}

// Egress records one decision of the egress proxy, by a kind of rule.
func (m *Metrics) Egress(allowed bool, rule string) {
	if m == nil {
		return
	}
	decision := "denied"
	if allowed {
		decision = "allowed"
	}
	m.egress.WithLabelValues(decision, rule).Inc()
}

// EgressEnded records a connection of a sandbox that has ended; an end of ""
// is an ordinary one.
func (m *Metrics) EgressEnded(protocol, end string, d time.Duration) {
	if m == nil {
		return
	}
	if end == "" {
		end = "closed"
	}
	m.egressSeconds.WithLabelValues(protocol, end).Observe(d.Seconds())
}

// EgressUnlisted records one more fact about egress that has no event.
func (m *Metrics) EgressUnlisted() {
	if m == nil {
		return
	}
	m.egressUnlisted.Inc()
}

// EgressTraffic makes metrics of the open connections and of what all together
// carried, those that are open included; traffic is asked at every scrape.
func (m *Metrics) EgressTraffic(traffic func() (open int, sent, received int64)) {
	bytes := func(direction string, count func() int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "cubby_egress_bytes_total", Help: "Bytes between sandboxes and hosts outside, counted while they flow.",
			ConstLabels: prometheus.Labels{"direction": direction},
		}, func() float64 { return float64(count()) })
	}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cubby_egress_connections", Help: "Connections of sandboxes to hosts outside that are open now.",
		}, func() float64 {
			open, _, _ := traffic()
			return float64(open)
		}),
		bytes("sent", func() int64 {
			_, sent, _ := traffic()
			return sent
		}),
		bytes("received", func() int64 {
			_, _, received := traffic()
			return received
		}),
	)
}

// DiskFault records that a disk became read-only, or that this is over.
func (m *Metrics) DiskFault(over bool) {
	switch {
	case m == nil:
	case over:
		m.disksFailed.Dec()
	default:
		m.disksFailed.Inc()
		m.diskFailures.Inc()
	}
}

// DiskPressure records what the watch over the host's disk saw.
func (m *Metrics) DiskPressure(frozen bool, free int64) {
	if m == nil {
		return
	}
	m.diskFrozen.Set(0)
	if frozen {
		m.diskFrozen.Set(1)
	}
	m.diskFree.Set(float64(free))
}

// Sandboxes makes the number of sandboxes by state a gauge. Count is asked at
// every scrape; when it fails the gauge is absent rather than wrong.
func (m *Metrics) Sandboxes(count func(context.Context) (map[string]int, error)) {
	m.registry.MustRegister(&stateCollector{
		desc:  prometheus.NewDesc("cubby_sandboxes", "Sandboxes by state.", []string{"state"}, nil),
		count: count,
	})
}

// Handler serves the metrics in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

type stateCollector struct {
	desc  *prometheus.Desc
	count func(context.Context) (map[string]int, error)
}

func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
	defer cancel()
	counts, err := c.count(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.desc, err)
		return
	}
	for state, n := range counts {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), state)
	}
}
