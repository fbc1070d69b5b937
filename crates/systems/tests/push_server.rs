//! A push server over real connections, and its users on a clock of integers.

mod browser;
mod limit;

use browser::Browser;
use limit::within_minutes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write, stderr};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use systems::push_server::{Answer, Client, Hub, PushServer};
use tickwheel::Mode;
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn modes() -> [Mode; 3] {
    [Mode::hierarchical(), Mode::hierarchical_with(4).unwrap(), Mode::hashed(8).unwrap()]
}

fn messages(texts: &[(u64, &str)]) -> Answer {
    Answer::Messages(texts.iter().map(|&(number, text)| (number, text.into())).collect())
}

fn now_says(answer: &mut Receiver<Answer>) -> Option<Answer> {
    match answer.try_recv() {
        Ok(answer) => Some(answer),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Closed) => panic!("each poll is answered"),
    }
}

/// The fault of a bucket that is a queue: its head, moved later, holds up those behind it.
#[test]
fn an_earlier_poll_that_moved_later_holds_up_nobody_in_its_bucket() {
    for mode in modes() {
        let start = Instant::now();
        let mut hub = Hub::new(mode, start, 0, ms(1_000), ms(500));
        let mut ann = hub.poll(start, "ann", 0);
        let mut bob = hub.poll(start, "bob", 0); // the same tick, and so the same bucket
        let mut again = hub.poll(start + ms(600), "ann", 0);
        assert_eq!(now_says(&mut ann), Some(Answer::Replaced));

        hub.expire(start + ms(999));
        assert_eq!((now_says(&mut again), now_says(&mut bob)), (None, None), "never early");
        hub.expire(start + ms(1_000));
        assert_eq!(now_says(&mut bob), Some(Answer::Reconnect), "{mode}");
        hub.expire(start + ms(1_599));
        assert_eq!(now_says(&mut again), None);
        hub.expire(start + ms(1_600));
        assert_eq!(now_says(&mut again), Some(Answer::Reconnect));
    }
}

#[test]
fn a_message_is_kept_until_a_poll_tells_that_it_came() {
    let start = Instant::now();
    let mut hub = Hub::new(Mode::hierarchical(), start, 0, ms(1_000), ms(500));
    drop(hub.poll(start, "ann", 0)); // the connection breaks
    assert!(hub.publish(start, "ann", &"one".into()));
    let mut ann = hub.poll(start, "ann", 0);
    assert_eq!(now_says(&mut ann), Some(messages(&[(1, "one")])));
    assert!(hub.publish(start, "ann", &"two".into()), "between two polls");
    // The first answer was lost, too.
    let mut ann = hub.poll(start, "ann", 0);
    assert_eq!(now_says(&mut ann), Some(messages(&[(1, "one"), (2, "two")])));
    let mut ann = hub.poll(start, "ann", 2);
    assert_eq!(now_says(&mut ann), None, "nothing comes twice");
    assert!(!hub.publish(start, "bob", &"one".into()), "there is no such user");

    for number in 3..=150 {
        hub.publish(start, "ann", &number.to_string().into());
    }
    assert_eq!(now_says(&mut ann), Some(messages(&[(3, "3")])));
    let mut ann = hub.poll(start, "ann", 3);
    let Some(Answer::Messages(kept)) = now_says(&mut ann) else { panic!("there are messages") };
    assert_eq!((kept[0].0, kept.len()), (51, 100), "the oldest made room");
}

#[test]
fn a_poll_that_is_ahead_of_the_server_changes_nothing_and_learns_the_last_number() {
    let start = Instant::now();
    let mut hub = Hub::new(Mode::hierarchical(), start, 0, ms(1_000), ms(500));
    for after in [1, u64::MAX] {
        let mut stranger = hub.poll(start, "ann", after);
        assert_eq!(now_says(&mut stranger), Some(Answer::Ahead(0)));
        assert_eq!(hub.users().count(), 0, "and is not remembered");
    }
    drop(hub.poll(start, "ann", 0)); // the connection breaks
    assert!(hub.publish(start, "ann", &"one".into()));
    for after in [2, 1 << 53, u64::MAX] {
        let mut attacker = hub.poll(start, "ann", after);
        assert_eq!(now_says(&mut attacker), Some(Answer::Ahead(1)));
    }
    let mut ann = hub.poll(start, "ann", 0);
    assert_eq!(now_says(&mut ann), Some(messages(&[(1, "one")])), "nothing is lost");
    let mut ann = hub.poll(start, "ann", 1);
    let mut attacker = hub.poll(start, "ann", u64::MAX);
    assert_eq!(now_says(&mut attacker), Some(Answer::Ahead(1)));
    assert!(hub.publish(start, "ann", &"two".into()));
    assert_eq!(now_says(&mut ann), Some(messages(&[(2, "two")])), "nor is the poll that waits");
}

#[test]
fn a_new_name_finds_no_room_among_too_many_and_those_that_are_there_do() {
    let start = Instant::now();
    let mut hub: Hub = Hub::new(Mode::hierarchical(), start, 0, ms(1_000), ms(500));
    for user in 0..100_000 {
        assert_eq!(now_says(&mut hub.poll(start, &user.to_string(), 0)), None);
    }
    assert_eq!(now_says(&mut hub.poll(start, "one too many", 0)), Some(Answer::Full));
    assert!(hub.publish(start, "7", &"seven".into()));
    assert_eq!(now_says(&mut hub.poll(start, "7", 0)), Some(messages(&[(1, "seven")])));
}

#[test]
fn numbers_go_on_after_a_user_was_forgotten_and_after_a_restart() {
    let start = Instant::now();
    let mut hub = Hub::new(Mode::hierarchical(), start, 1_000, ms(1_000), ms(500));
    let mut last = 0;
    for (round, text) in (0..).zip(["one", "two", "three"]) {
        let now = start + ms(2_000) * round;
        hub.expire(now - ms(400));
        hub.expire(now);
        assert_eq!(hub.users().count(), 0, "forgotten");
        let mut ann = hub.poll(now, "ann", last);
        assert_eq!(now_says(&mut ann), None, "what it had before is not ahead");
        assert!(hub.publish(now, "ann", &text.into()));
        let Some(Answer::Messages(all)) = now_says(&mut ann) else { panic!("there is one") };
        assert!(last < all[0].0 && *all[0].1 == *text);
        last = all[0].0;
        if round == 1 {
            // Two seconds after the start of the first hub.
            hub = Hub::new(Mode::hierarchical(), start, 2_001_000, ms(1_000), ms(500));
        }
    }
}

/// Random polls, messages and jumps, against the deadlines in a map.
#[test]
fn each_poll_is_answered_at_its_deadline_or_with_its_messages() {
    for mode in modes() {
        let mut random = fastrand::Rng::with_seed(14);
        let (start, hold, grace) = (Instant::now(), 2_000, 700);
        let mut hub = Hub::new(mode, start, 0, ms(hold), ms(grace));
        let (mut now, mut reconnects, mut forgotten) = (0, 0, 0);
        // The poll that waits, the deadline of the user, the numbers of all messages and of those
        // that came.
        type Known = (Option<Receiver<Answer>>, u64, u64, u64);
        let mut users: HashMap<String, Known> = HashMap::new();
        for _ in 0..20_000 {
            let user = random.u32(..300).to_string();
            if random.bool() {
                let after = users.get(&user).map_or(1_000 * now, |&(.., came)| came);
                let mut poll = hub.poll(start + ms(now), &user, after);
                let known = users.entry(user).or_insert((None, 0, after, after));
                if let Some(mut replaced) = known.0.take() {
                    assert_eq!(now_says(&mut replaced), Some(Answer::Replaced));
                }
                known.1 = now + hold;
                match now_says(&mut poll) {
                    None => known.0 = Some(poll),
                    Some(Answer::Messages(all)) => {
                        assert!(all.iter().map(|&(number, _)| number).eq(known.3 + 1..=known.2));
                        (known.1, known.3) = (now + grace, known.2);
                    }
                    Some(other) => panic!("{other:?}"),
                }
            } else {
                assert_eq!(
                    hub.publish(start + ms(now), &user, &"news".into()),
                    users.contains_key(&user)
                );
                if let Some(known) = users.get_mut(&user) {
                    known.2 += 1;
                    if let Some(mut poll) = known.0.take() {
                        assert_eq!(now_says(&mut poll), Some(messages(&[(known.2, "news")])));
                        (known.1, known.3) = (now + grace, known.2);
                    }
                }
            }
            now += random.u64(..5) * random.u64(..5);
            hub.expire(start + ms(now));
            users.retain(|user, (poll, deadline, ..)| {
                let answer = poll.as_mut().and_then(now_says);
                let is_due = *deadline <= now;
                match poll {
                    Some(_) if is_due => {
                        assert_eq!(answer, Some(Answer::Reconnect), "{user} at {now}");
                        (*poll, *deadline) = (None, now + grace);
                        reconnects += 1;
                    }
                    Some(_) => assert_eq!(answer, None, "{user} at {now}, due at {deadline}"),
                    None => forgotten += usize::from(is_due),
                }
                poll.is_some() || !is_due || *deadline == now + grace
            });
            assert_eq!(hub.users().count(), users.len());
        }
        assert!(100 < reconnects && 100 < forgotten, "{reconnects} {forgotten}");
    }
}

fn server(hold: Duration, grace: Duration) -> PushServer {
    PushServer::start((Ipv4Addr::LOCALHOST, 0).into(), hold, grace).unwrap()
}

/// Polls once, and returns the status, the answer and how long it took.
fn poll(address: SocketAddr, path: String) -> JoinHandle<(u16, Value, Duration)> {
    tokio::spawn(async move {
        let mut client = Client::connect(address).await.unwrap();
        let begun = Instant::now();
        let (status, said) = client.get(&path).await.unwrap();
        (status, said, begun.elapsed())
    })
}

async fn wait_for_waiting(address: SocketAddr, count: usize) {
    let mut client = Client::connect(address).await.unwrap();
    let begun = Instant::now();
    while client.get("/waiting").await.unwrap().1["waiting"] != count {
        assert!(begun.elapsed() < LONG, "they never wait all at once");
        sleep(ms(5)).await;
    }
}

#[tokio::test]
async fn five_thousand_connections_are_held_and_each_gets_what_is_its_own() {
    let _limit = within_minutes();
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 2 * HELD as u64 + 200) {
        assert!(std::env::var_os("CI").is_none(), "ulimit -n allows too few open files");
        // Past the harness, which would keep it to itself.
        let _ = writeln!(stderr(), "skipped: ulimit -n allows too few open files");
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();

    let hold = ms(12_000);
    let server = server(hold, LONG);
    let address = server.address;
    let mut users = JoinSet::new();
    for user in 0..HELD {
        users.spawn(async move {
            let mut client = Client::connect(address).await.unwrap();
            let (mut texts, mut after) = (Vec::new(), 0);
            loop {
                let path = format!("/poll?user=user{user}&after={after}");
                let begun = Instant::now();
                let (status, said) = client.get(&path).await.unwrap();
                assert_eq!(status, 200);
                if let Some(messages) = said["messages"].as_array() {
                    texts.extend(messages.iter().map(|message| message[1].to_string()));
                    after = messages.last().unwrap()[0].as_u64().unwrap();
                } else if texts.iter().any(|text| text == "\"for all\"") {
                    return (user, texts, begun.elapsed());
                }
            }
        });
    }
    wait_for_waiting(address, HELD).await;
    let mut publisher = Client::connect(address).await.unwrap();
    let (_, said) = publisher.get("/waiting").await.unwrap();
    println!("{said}");
    assert!(HELD < said["connections"].as_u64().unwrap() as usize);
    let no_timer = fs::read_dir("/proc/self/task").unwrap().all(|task| {
        let name = fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default();
        !name.starts_with("tickwheel")
    });
    assert!(no_timer, "the server's own loop drives its wheels");

    let begun = Instant::now();
    for user in (0..HELD).step_by(10) {
        let path = format!("/publish?to=user{user}");
        let (_, said) = publisher.post(&path, format!("own {user}")).await.unwrap();
        assert_eq!(said, json!({ "reached": 1 }));
    }
    println!("{} messages, each to one user, in {:?}", HELD / 10, begun.elapsed());
    wait_for_waiting(address, HELD).await;
    let begun = Instant::now();
    let (_, said) = publisher.post("/publish", "for all").await.unwrap();
    assert_eq!(said, json!({ "reached": HELD }));
    println!("one message to all in {:?}", begun.elapsed());

    let mut longest = Duration::ZERO;
    while let Some(done) = users.join_next().await {
        let (user, texts, held) = done.unwrap();
        let own = (user % 10 == 0).then(|| format!("\"own {user}\""));
        assert!(texts.into_iter().eq(own.into_iter().chain(["\"for all\"".to_owned()])));
        assert!(hold <= held, "never early");
        longest = longest.max(held);
    }
    println!("told to reconnect after at most {longest:?} of {hold:?}");
    assert!(longest < hold + LONG / 2);
}

#[tokio::test]
async fn a_poll_is_held_for_its_time_and_another_of_its_user_ends_it() {
    let _limit = within_minutes();
    let hold = ms(1_000);
    let brief = server(hold, LONG);
    let (status, said, held) = poll(brief.address, "/poll?user=eve".to_owned()).await.unwrap();
    assert_eq!((status, said), (200, json!({ "reconnect": true })), "nothing else wakes the loop");
    assert!(hold <= held);

    let server = server(LONG, LONG);
    let ann = poll(server.address, "/poll?user=ann".to_owned());
    wait_for_waiting(server.address, 1).await;
    let bob = poll(server.address, "/poll?user=bob".to_owned());
    wait_for_waiting(server.address, 2).await;
    let again = poll(server.address, "/poll?user=ann".to_owned());
    let (status, said, _) = ann.await.unwrap();
    assert_eq!((status, said), (409, json!({ "error": "another poll of this user waits" })));
    wait_for_waiting(server.address, 2).await;
    assert!(!bob.is_finished() && !again.is_finished());
}

#[tokio::test]
async fn what_is_wrong_is_answered_with_what_would_be_right() {
    let _limit = within_minutes();
    let server = server(LONG, LONG);
    let mut client = Client::connect(server.address).await.unwrap();
    for path in ["/poll", "/poll?user=", "/poll?user=ann&after=x", "/poll?user=ann&after=-1"] {
        let (status, said) = client.get(path).await.unwrap();
        assert_eq!(status, 400, "{path}");
        assert!(said["error"].as_str().unwrap().contains("/poll?user=NAME&after=NUMBER"));
    }
    let (status, _) = client.get(&format!("/poll?user={}", "x".repeat(101))).await.unwrap();
    assert_eq!(status, 400);
    assert_eq!(client.get("/elsewhere").await.unwrap().0, 404);
    assert_eq!(client.post("/publish", vec![0xff]).await.unwrap().0, 400);
    assert_eq!(client.post("/publish", vec![b'x'; 16_385]).await.unwrap().0, 413);
    let (status, said) = client.get("/poll?user=ann&after=18446744073709551615").await.unwrap();
    // Microseconds since 1970, which a browser can tell apart.
    let last = said["last"].as_u64().unwrap();
    assert!(status == 200 && 1 << 50 < last && last < 1 << 53, "{said}");
}

#[tokio::test]
async fn texts_beyond_their_room_are_refused_until_others_have_come() {
    const USERS: usize = 42;
    let _limit = within_minutes();
    let server = server(LONG, LONG);
    let polls = (0..USERS).map(|user| poll(server.address, format!("/poll?user={user}")));
    let polls: Vec<_> = polls.collect();
    wait_for_waiting(server.address, USERS).await;
    polls.iter().for_each(JoinHandle::abort);
    wait_for_waiting(server.address, 0).await;
    let mut client = Client::connect(server.address).await.unwrap();
    let text = "x".repeat(16_384);
    let mut taken = 0;
    while client.post(&format!("/publish?to={}", taken % USERS), text.clone()).await.unwrap().0
        == 200
    {
        taken += 1;
        assert!(taken < 42 * 100, "the oldest make room before");
    }
    assert!(4_000 < taken, "{taken} texts have room");
    // An answer has some of them, and the next one the rest.
    let (_, said) = client.get("/poll?user=0").await.unwrap();
    let some = said["messages"].as_array().unwrap();
    assert!((2..taken / USERS).contains(&some.len()), "{} in one answer", some.len());
    let last = some[some.len() - 1][0].as_u64().unwrap();
    let (_, said) = client.get(&format!("/poll?user=0&after={last}")).await.unwrap();
    assert_eq!(said["messages"][0][0], last + 1);
    assert_eq!(client.post("/publish?to=0", text).await.unwrap().0, 200);
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let _limit = within_minutes();
    let (hold, grace) = (ms(400), ms(300));
    let server = server(hold, grace);
    for head in [
        "",
        "GET /poll?user=ann HTTP/1.1\r\n",
        "POST /publish HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
    ] {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut rest = Vec::new();
        // Closed, or reset: an error that says that nothing came is none of them.
        let closed = stream.read_to_end(&mut rest);
        assert!(closed.map_or_else(|error| error.raw_os_error() != Some(11), |_| true), "{head:?}");
        assert!(hold + grace <= begun.elapsed() && rest.is_empty(), "{head:?}");
    }
}

#[tokio::test]
async fn a_connection_with_requests_stays() {
    let _limit = within_minutes();
    let (hold, grace) = (ms(500), ms(1_000));
    let server = server(hold, grace);
    'begins: loop {
        let begun = Instant::now();
        let (mut client, mut asked) = (Client::connect(server.address).await.unwrap(), begun);
        while begun.elapsed() < 2 * (hold + grace) {
            let before = std::mem::replace(&mut asked, Instant::now());
            match client.get("/poll?user=ann").await {
                Ok((_, said)) => assert_eq!(said, json!({ "reconnect": true })),
                // This thread was kept from its core for so long that nothing came from it.
                Err(_) if hold + grace <= before.elapsed() => continue 'begins,
                Err(error) => panic!("{error}"),
            }
        }
        return;
    }
}

#[tokio::test]
async fn a_user_outlives_a_broken_connection_and_a_restart() {
    let _limit = within_minutes();
    let first = server(LONG, LONG);
    let address = first.address;
    let mut publisher = Client::connect(address).await.unwrap();
    let broken = poll(address, "/poll?user=ann".to_owned());
    wait_for_waiting(address, 1).await;
    broken.abort();
    wait_for_waiting(address, 0).await;
    let (_, said) = publisher.post("/publish?to=ann", "while you were away").await.unwrap();
    assert_eq!(said, json!({ "reached": 1 }));
    let (_, said, _) = poll(address, "/poll?user=ann".to_owned()).await.unwrap();
    assert_eq!(said["messages"][0][1], "while you were away");
    let last = &said["messages"][0][0];

    let mut bob = Client::connect(address).await.unwrap();
    let held = tokio::spawn(async move { bob.get("/poll?user=bob").await.is_err() });
    wait_for_waiting(address, 1).await;
    drop(first);
    assert!(held.await.unwrap(), "it is not answered, and does not wait for ever");
    let _second = PushServer::start(address, LONG, LONG).unwrap();
    let mut publisher = Client::connect(address).await.unwrap();
    let ann = poll(address, format!("/poll?user=ann&after={last}"));
    wait_for_waiting(address, 1).await;
    publisher.post("/publish?to=ann", "from another server").await.unwrap();
    assert_eq!(ann.await.unwrap().1["messages"][0][1], "from another server");
}

#[tokio::test]
async fn the_page_shows_messages_as_they_arrive() {
    let _limit = within_minutes();
    let server = server(ms(1_000), LONG);
    let url = format!("http://{}/?user=ann", server.address);
    let Some(mut page) = Browser::open(&url).await else { return };
    let mut publisher = Client::connect(server.address).await.unwrap();
    wait_for_waiting(server.address, 1).await;
    page.wait_for("document.getElementById('state').dataset.is", &json!("held"));
    let shown = "[...document.querySelectorAll('#messages span')].map((line) => line.textContent)";
    assert_eq!(page.evaluate(shown), json!([]));

    publisher.post("/publish?to=ann", "your taxi is here").await.unwrap();
    page.wait_for(shown, &json!(["your taxi is here"]));
    publisher.post("/publish", "<b>it rains</b>").await.unwrap();
    page.wait_for(shown, &json!(["your taxi is here", "<b>it rains</b>"]));
    page.wait_for("0 < +document.getElementById('reconnects').textContent", &json!(true));

    // A client that lies about the number takes nothing from the page.
    let (_, said) = publisher.get(&format!("/poll?user=ann&after={}", u64::MAX)).await.unwrap();
    assert!(said["last"].is_u64(), "{said}");
    publisher.post("/publish?to=ann", "still here").await.unwrap();
    page.wait_for(shown, &json!(["your taxi is here", "<b>it rains</b>", "still here"]));
    page.evaluate("var ahead = after += 1_000_000"); // as if the server's clock had gone back
    page.wait_for("after < ahead", &json!(true));
    publisher.post("/publish?to=ann", "and here").await.unwrap();
    let four = ["your taxi is here", "<b>it rains</b>", "still here", "and here"];
    page.wait_for(shown, &json!(four));

    // From the page itself, to all.
    let send = "document.forms[0].elements.text.value = 'hello'; document.forms[0].requestSubmit()";
    page.evaluate(send);
    page.wait_for(shown, &json!([four.as_slice(), &["hello"]].concat()));
    page.wait_for("document.querySelector('output').textContent", &json!("reached 1"));

    let address = server.address;
    drop(server);
    page.wait_for("document.getElementById('state').dataset.is", &json!("broken"));
    let _second = PushServer::start(address, ms(1_000), LONG).unwrap();
    let mut publisher = Client::connect(address).await.unwrap();
    wait_for_waiting(address, 1).await;
    publisher.post("/publish?to=ann", "back").await.unwrap();
    page.wait_for(shown, &json!([four.as_slice(), &["hello", "back"]].concat()));
}

const HELD: usize = 5_000;
/// Only what hangs takes as long.
const LONG: Duration = Duration::from_secs(300);
