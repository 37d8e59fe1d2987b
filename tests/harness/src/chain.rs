//! The chain experiment: how often is a customer charged for one purchase?
//!
//! ```text
//! caller ──► edge ──► [gateway] ──► orders ──► [gateway] ──► payments
//! ```
//!
//! Three real HTTP services, and in three of the four scenarios an Oncegate process in front of
//! `orders` and one in front of `payments`, both on one real Redis. Everybody behaves well:
//! `edge` and `orders` give up on a slow answer and ask once more, as every client library does,
//! and finish what they began when their own caller has left. `payments` does the work first and
//! answers late, so what gets lost is always the answer of finished work.
//!
//! The delays are the same in all scenarios:
//!
//! | who | waits for an answer | then pauses | and asks |
//! |---|---|---|---|
//! | `edge` → `orders` | 600 ms | 1600 ms | once more |
//! | `orders` → `payments` | 1200 ms | 600 ms | once more |
//! | `payments` | charges at once, answers after 1500 ms | | |
//!
//! Which gives, without any key, in milliseconds from the caller's request:
//!
//! ```text
//!    0  edge asks orders (1)      orders asks payments (1.1)   charge 1
//!  600  edge gives up             orders goes on
//! 1200                            orders gives up on 1.1
//! 1500                                                         payments answers 1.1: too late
//! 1800                            orders asks again (1.2)      charge 2
//! 2200  edge asks again (2)       orders asks payments (2.1)   charge 3
//! 2800  edge gives up; the caller hears "504"
//! 4000                            orders asks again (2.2)      charge 4
//! ```
//!
//! With one key, the attempt 1.2 finds the answer that came at 1500, `orders` finishes at about
//! 1800, and the second attempt of `edge` at 2200 is answered from the record: the caller gets
//! its answer on that attempt. Between an answer being stored and being asked for lie at least
//! 300 ms, which is what a slow machine may lose without changing the outcome.
//!
//! In the end, when nothing moves any more and `payments` answers at once again, the caller asks
//! a second time for the same purchase: the *later retry*.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::gateway::{Gateway, Launch};
use crate::policy::{Policy, Route};
use crate::store::Store;
use crate::wait::patiently;

/// How long `edge` waits for `orders`, and pauses before its second attempt.
const EDGE: Client = Client { patience: ms(600), pause: ms(1600) };

/// How long `orders` waits for `payments`, and pauses before its second attempt.
const ORDERS: Client = Client { patience: ms(1200), pause: ms(600) };

/// How long after the charge `payments` answers.
const PAYMENTS_ANSWERS_AFTER: Duration = ms(1500);

/// The caller waits for everything that `edge` may try.
const CALLER_PATIENCE: Duration = Duration::from_secs(10);

const ATTEMPTS: usize = 2;

const KEY: &str = "idempotency-key";
const PURCHASE: &str = "{\"item\":\"book\",\"price\":1250}";

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Runs the four scenarios, one after the other, each on a fresh set of processes.
pub async fn run() -> Result<Report> {
    let store = Store::redis();
    let mut scenarios = Vec::new();
    for keys in [Keys::None, Keys::PerAttempt, Keys::PerIntent, Keys::Fingerprint] {
        scenarios.push(scenario(keys, &store).await.with_context(|| keys.title())?);
    }
    Ok(Report { scenarios })
}

/// What tells one intent from another, and who decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Nothing does, and there is no gateway.
    None,
    /// `edge` makes a key for each of its attempts; later hops pass on what they got.
    PerAttempt,
    /// The caller makes one key, and every hop and attempt passes it on.
    PerIntent,
    /// Nobody sends a key: each gateway makes one from what is asked.
    Fingerprint,
}

impl Keys {
    fn title(self) -> &'static str {
        match self {
            Self::None => "no idempotency",
            Self::PerAttempt => "a key per attempt",
            Self::PerIntent => "one key, propagated",
            Self::Fingerprint => "a fingerprint per hop",
        }
    }

    /// The key that a hop sends on, given the one it received.
    fn passed_on(self, received: Option<&HeaderValue>) -> Option<HeaderValue> {
        match self {
            Self::None | Self::Fingerprint => None,
            Self::PerAttempt | Self::PerIntent => received.cloned(),
        }
    }

    /// The key that `edge` puts on its attempt.
    fn of_attempt(self, received: Option<&HeaderValue>) -> Option<HeaderValue> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        if self != Self::PerAttempt {
            return self.passed_on(received);
        }
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Some(HeaderValue::from_str(&format!("\"attempt-{number}\"")).expect("a header value"))
    }

    /// The plugin a gateway takes the key from; none means no gateway.
    fn plugin(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::PerAttempt | Self::PerIntent => Some("client-key"),
            Self::Fingerprint => Some("request"),
        }
    }
}

/// What happened in one scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Who made which keys.
    pub keys: Keys,
    /// Charges in the ledger of `payments` when everything had settled.
    pub charges: usize,
    /// What the caller got for its first request.
    pub first: Heard,
    /// What the caller got for its later retry.
    pub later: Heard,
    /// Charges that the later retry added.
    pub charges_by_later_retry: usize,
}

/// One answer, as the caller heard it.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The status.
    pub status: u16,
    /// On which attempt of `edge` it came; `None` when all attempts ended without an answer.
    pub attempt: Option<usize>,
    /// What the gateway said about it, if there is one.
    pub outcome: Option<String>,
    /// How long the caller waited.
    pub after: Duration,
}

impl fmt::Display for Heard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.status)?;
        match self.attempt {
            Some(attempt) => write!(out, " on attempt {attempt}")?,
            None => write!(out, " after {ATTEMPTS} attempts")?,
        }
        if let Some(outcome) = &self.outcome {
            write!(out, ", {outcome}")?;
        }
        write!(out, ", {} ms", self.after.as_millis())
    }
}

/// The four scenarios.
#[derive(Clone, Debug)]
pub struct Report {
    /// In this order: none, per attempt, per intent, fingerprint.
    pub scenarios: Vec<Scenario>,
}

impl Report {
    /// The charges of each scenario, from the ledgers.
    pub fn charges(&self) -> Vec<usize> {
        self.scenarios.iter().map(|scenario| scenario.charges).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = [23, 9, 42, 42];
        let row = |out: &mut fmt::Formatter<'_>, cells: [&str; 5]| {
            for (cell, width) in cells.iter().zip(width) {
                write!(out, "{cell:<width$}")?;
            }
            writeln!(out, "{}", cells[4])
        };
        row(out, ["scenario", "charges", "the caller got", "a later retry got", "charged again"])?;
        for one in &self.scenarios {
            let again = match one.charges_by_later_retry {
                0 => "no".to_owned(),
                more => format!("yes, charge {}", one.charges + more),
            };
            let (charges, first) = (one.charges.to_string(), one.first.to_string());
            row(out, [one.keys.title(), &charges, &first, &one.later.to_string(), &again])?;
        }
        Ok(())
    }
}

/// Runs one scenario on processes of its own.
pub async fn scenario(keys: Keys, store: &Store) -> Result<Scenario> {
    let chain = Chain::start(keys, store).await?;
    let first = chain.buy().await?;
    chain.settled().await;
    let charges = chain.ledger.charges();

    chain.ledger.late.store(false, Ordering::SeqCst);
    let later = chain.buy().await?;
    chain.settled().await;
    let charges_by_later_retry = chain.ledger.charges() - charges;
    Ok(Scenario { keys, charges, first, later, charges_by_later_retry })
}

/// All the processes and services of one scenario.
struct Chain {
    keys: Keys,
    edge: Service,
    orders: Service,
    payments: Service,
    ledger: Arc<Ledger>,
    _gateways: Vec<Gateway>,
}

impl Chain {
    async fn start(keys: Keys, store: &Store) -> Result<Self> {
        let ledger = Arc::new(Ledger { late: AtomicBool::new(true), charges: Mutex::default() });
        let mut gateways = Vec::new();

        let shop = ledger.clone();
        let payments = Service::start(move |request| pay(shop.clone(), request)).await?;
        let payments_at = guard(keys, "charge", &payments, store, &mut gateways).await;

        let orders = Service::start(move |request| order(keys, payments_at, request)).await?;
        let orders_at = guard(keys, "order", &orders, store, &mut gateways).await;

        let edge = Service::start(move |request| buy(keys, orders_at, request)).await?;
        Ok(Self { keys, edge, orders, payments, ledger, _gateways: gateways })
    }

    /// One purchase, as the caller makes it: always the same one.
    async fn buy(&self) -> Result<Heard> {
        let key = HeaderValue::from_static("\"purchase-1\"");
        let key = (self.keys == Keys::PerIntent).then_some(key);
        let begun = Instant::now();
        let answer = call(self.edge.address, "/buy", key, PURCHASE, CALLER_PATIENCE).await;
        let answer = answer.context("edge did not answer the caller")?;
        let text = |name: &str| {
            let value = answer.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        Ok(Heard {
            status: answer.status().as_u16(),
            attempt: text("x-attempt").and_then(|text| text.parse().ok()),
            outcome: text("idempotency-status"),
            after: begun.elapsed(),
        })
    }

    /// Returns when nothing moves any more. Top down: a service that is idle begins nothing, so
    /// once the one above is idle only the ones below can still be busy.
    async fn settled(&self) {
        for service in [&self.edge, &self.orders, &self.payments] {
            patiently("a service to become idle", service.idle()).await;
        }
    }
}

/// Where a caller of `service` connects: at its gateway, if this scenario has one.
async fn guard(
    keys: Keys,
    operation: &str,
    service: &Service,
    store: &Store,
    gateways: &mut Vec<Gateway>,
) -> SocketAddr {
    let Some(plugin) = keys.plugin() else { return service.address };
    let header = "{ header = \"Idempotency-Key\", required = false }";
    let route = Route::guarded(operation, &format!("/{operation}"))
        .set("upstream", "\"service\"")
        .set("key", &format!("[{plugin:?}]"));
    let policy = Policy::new()
        .upstream("service", &[&format!("http://{}", service.address)])
        .plugin("client-key", "builtin:header-key", header)
        .fingerprint("request", &["method", "path", "query", "body"])
        .route(route);
    // One namespace for each scenario: they share the Redis, and must not share records.
    let namespace = format!("chain-{}", keys.title().replace([' ', ','], "-"));
    let gateway = Launch::new(store, policy).namespace(&namespace).start().await;
    let address = gateway.address();
    gateways.push(gateway);
    address
}

/// `edge`: asks `orders`, and once more when no good answer comes in time.
async fn buy(keys: Keys, orders: SocketAddr, request: Request<Bytes>) -> Response<Full<Bytes>> {
    let received = request.headers().get(KEY);
    let body = text(request.body());
    let mut last = None;
    for attempt in 1..=ATTEMPTS {
        if attempt > 1 {
            tokio::time::sleep(EDGE.pause).await;
        }
        let key = keys.of_attempt(received);
        last = call(orders, "/order", key, &body, EDGE.patience).await;
        if let Some(answer) = &last
            && answer.status().is_success()
        {
            return relayed(answer, attempt);
        }
    }
    match last {
        Some(answer) => relayed(&answer, ATTEMPTS),
        None => plain(StatusCode::GATEWAY_TIMEOUT, "{\"error\":\"orders did not answer\"}"),
    }
}

/// An answer of `orders` for the caller, with the attempt it came on.
fn relayed(answer: &Response<Bytes>, attempt: usize) -> Response<Full<Bytes>> {
    let mut relayed = plain(answer.status(), &text(answer.body()));
    let headers = relayed.headers_mut();
    headers.insert("x-attempt", HeaderValue::from(attempt));
    if let Some(outcome) = answer.headers().get("idempotency-status") {
        headers.insert("idempotency-status", outcome.clone());
    }
    relayed
}

/// `orders`: asks `payments`, and once more when no good answer comes in time.
async fn order(keys: Keys, payments: SocketAddr, request: Request<Bytes>) -> Response<Full<Bytes>> {
    let received = request.headers().get(KEY);
    // Made from the purchase alone, so that every attempt asks for the same thing.
    let charge = format!("{{\"charge\":{}}}", text(request.body()));
    for attempt in 1..=ATTEMPTS {
        if attempt > 1 {
            tokio::time::sleep(ORDERS.pause).await;
        }
        let key = keys.passed_on(received);
        let answer = call(payments, "/charge", key, &charge, ORDERS.patience).await;
        if let Some(answer) = answer
            && answer.status().is_success()
        {
            let body = format!("{{\"ordered\":{}}}", text(answer.body()));
            return plain(StatusCode::CREATED, &body);
        }
    }
    plain(StatusCode::SERVICE_UNAVAILABLE, "{\"error\":\"payments did not answer\"}")
}

/// What `payments` has done.
struct Ledger {
    /// Whether it answers late, or is quick again.
    late: AtomicBool,
    /// The key each charge came with.
    charges: Mutex<Vec<Option<HeaderValue>>>,
}

impl Ledger {
    fn charges(&self) -> usize {
        self.charges.lock().expect("no charge panics").len()
    }

    fn charge(&self, key: Option<&HeaderValue>) -> usize {
        let mut charges = self.charges.lock().expect("no charge panics");
        charges.push(key.cloned());
        charges.len()
    }
}

/// `payments`: charges, and only then takes its time.
async fn pay(ledger: Arc<Ledger>, request: Request<Bytes>) -> Response<Full<Bytes>> {
    let number = ledger.charge(request.headers().get(KEY));
    if ledger.late.load(Ordering::SeqCst) {
        tokio::time::sleep(PAYMENTS_ANSWERS_AFTER).await;
    }
    plain(StatusCode::CREATED, &format!("{{\"charge\":{number}}}"))
}

fn text(body: &Bytes) -> String {
    String::from_utf8_lossy(body).into_owned()
}

fn plain(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    response
}

/// How patient a client is.
struct Client {
    patience: Duration,
    pause: Duration,
}

/// One attempt on a connection of its own, so that no pool repeats it unasked. `None` when no
/// whole answer came in time; the connection is closed then.
async fn call(
    peer: SocketAddr,
    path: &str,
    key: Option<HeaderValue>,
    body: &str,
    patience: Duration,
) -> Option<Response<Bytes>> {
    tokio::time::timeout(patience, exchange(peer, path, key, body)).await.ok()?.ok()
}

async fn exchange(
    peer: SocketAddr,
    path: &str,
    key: Option<HeaderValue>,
    body: &str,
) -> Result<Response<Bytes>> {
    let stream = TcpStream::connect(peer).await?;
    let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
    // Driven here and not in a task of its own: whoever drops this call closes its connection.
    let answer = async {
        let response = sender.send_request(request(peer, path, key, body)?).await?;
        let (head, body) = response.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    };
    let connection = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = connection => never,
    }
}

fn request(
    peer: SocketAddr,
    path: &str,
    key: Option<HeaderValue>,
    body: &str,
) -> Result<Request<Full<Bytes>>> {
    let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
    let mut request = Request::post(path).body(body)?;
    let headers = request.headers_mut();
    headers.insert("host", HeaderValue::from_str(&peer.to_string())?);
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    if let Some(key) = key {
        headers.insert(KEY, key);
    }
    Ok(request)
}

/// A service on a port of its own, which finishes what it began.
struct Service {
    address: SocketAddr,
    busy: watch::Sender<usize>,
    task: JoinHandle<()>,
}

impl Service {
    async fn start<H, F>(handler: H) -> Result<Self>
    where
        H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        ensure!(address.ip().is_loopback(), "the services stay on this machine");
        let busy = watch::Sender::new(0);
        let task = tokio::spawn(accept(listener, handler, busy.clone()));
        Ok(Self { address, busy, task })
    }

    /// Returns when no request is being worked on.
    async fn idle(&self) {
        let mut busy = self.busy.subscribe();
        // We hold the sender, so the channel cannot close.
        let _ = busy.wait_for(|busy| *busy == 0).await;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept<H, F>(listener: TcpListener, handler: H, busy: watch::Sender<usize>)
where
    H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (handler, busy) = (handler.clone(), busy.clone());
        let service = service_fn(move |request| finish(handler.clone(), busy.clone(), request));
        let connection = server::Builder::new().serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move {
            // A caller that left before its answer is no error of this service.
            let _ = connection.await;
        });
    }
}

/// Works in a task of its own: hyper drops the handler when the caller leaves, and a service that
/// has begun to charge does not stop half-way.
async fn finish<H, F>(
    handler: H,
    busy: watch::Sender<usize>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>>
where
    H: Fn(Request<Bytes>) -> F + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    busy.send_modify(|busy| *busy += 1);
    let work = tokio::spawn(async move {
        let response = handler(Request::from_parts(head, body)).await;
        busy.send_modify(|busy| *busy -= 1);
        response
    });
    Ok(work.await?)
}
